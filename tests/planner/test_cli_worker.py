"""What ``planner worker`` asks of its options; what it then does is in tests with real processes."""

from __future__ import annotations

import logging.config
from datetime import UTC, datetime
from pathlib import Path

import pytest

from db.store import Store
from planner.cli.main import run
from planner.question import Question
from planner.resolving import request_of
from planner.studying.opening import open_study
from planner.studying.settings import StudySettings

QUESTION = Question(model="llama-3-8b", cluster="dgx-h100", devices=8, global_batch_size=16, seq_len=2048)


@pytest.fixture(autouse=True)
def database(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PLANNER_DATABASE_URL", sqlite_url)
    # The log of this process is the tests' own.
    monkeypatch.setattr(logging.config, "dictConfig", lambda _: None)
    return sqlite_url


@pytest.fixture
def launch(tmp_path: Path) -> str:
    file = tmp_path / "trials.toml"
    file.write_text('[command]\nargv = ["true"]\n', encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ((), "database-url", "several processes need PostgreSQL"),
        (("--study", "one"), "study", "--runner"),
        (("--launch", "trials.toml"), "launch", "--runner"),
        (("--folder", "here"), "folder", "--runner"),
        (("--runner", "command"), "launch", "[command]"),
        (("--runner", "ssh"), "runner", "local, command, slurm are known"),
        (("--runner", "local", "--slots", "2"), "slots", "about searches"),
        (("--runner", "slurm", "--study", "none"), "study", "no study of that name"),
    ],
)
def test_what_is_unusable_is_named(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], field: str, said: str
) -> None:
    assert run(["worker", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"planner: {field}:")
    assert said in err


def test_a_study_of_another_runner_is_not_for_it(
    database: str, launch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(database) as store:
        open_study(store, request_of(QUESTION), StudySettings(runner="slurm"), name="one", now=datetime.now(UTC))
    assert run(["worker", "--runner", "command", "--launch", launch, "--study", "one"]) == 2
    assert "--runner slurm" in capsys.readouterr().err


def test_a_study_that_is_over_is_left_at_once(
    database: str, launch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(database) as store:
        settings = StudySettings(runner="command")
        study = open_study(store, request_of(QUESTION), settings, name="one", now=datetime.now(UTC))
        with store.writing() as repos:
            repos.studies.end(study.id, "stopped", "it was cancelled", datetime.now(UTC))
    arguments = ("--runner", "command", "--launch", launch, "--study", "one", "--folder", str(tmp_path))
    assert run(["worker", *arguments]) == 0
    assert "running trials of study one" in capsys.readouterr().err
