"""A disk that is full, really: of the trials' files, and of the database. No finished trial is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from db.store import Store
from planner.studying.worker import TrialsHaveNoRoom
from tests.processes import eventually
from tests.studying.lab import WAIT_S, Lab, check_study, lab_in, ready, trials_of


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB; only root may make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=False).returncode:
        pytest.skip("nobody but root mounts a disk")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> Path:
    """To the last byte; returns what to remove."""
    path = disk / "filler"
    with suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    with suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            file.write(b"x")
    return path


def test_no_room_for_the_files_of_trials(disk: Path, sqlite_url: str, tmp_path: Path) -> None:
    lab = Lab(tmp_path, trials=disk / "trials")
    lab.rules([((), "later:until")])
    with Store.open(sqlite_url) as store, ThreadPoolExecutor(1) as pool:
        study = ready(store, lab, trials=2)
        ended = pool.submit(lab.worker(store).run, study.id)
        assert eventually(lambda: len(lab.starts()) == 2, WAIT_S)
        filler = fill(disk)
        lab.go.touch()
        with pytest.raises(TrialsHaveNoRoom, match="No space left on device"):
            ended.result(WAIT_S)
        first, second = trials_of(store, study)
        assert (first.outcome, second.state, second.owner) == ("ok", "running", None)
        filler.unlink()
        lab.worker(store).run(study.id)
        trials = check_study(store, study, lab)
        assert trials[0] == first
        assert [trial.outcome for trial in trials] == ["ok", "ok"]


def test_no_room_for_the_database(disk: Path, tmp_path: Path) -> None:
    lab = lab_in(tmp_path, [((), "later:until")])
    said: list[str] = []
    with Store.open(f"sqlite:///{disk / 'planner.db'}") as store, ThreadPoolExecutor(1) as pool:
        study = ready(store, lab, trials=2)
        worker = lab.worker(store, heard=lambda _, words: said.append(words))
        ended = pool.submit(worker.run, study.id)
        assert eventually(lambda: len(lab.starts()) == 2, WAIT_S)
        filler = fill(disk)
        lab.go.touch()
        assert eventually(lambda: any("waits to be written" in words for words in said), WAIT_S)
        assert trials_of(store, study)[1].state == "running"
        filler.unlink()
        ended.result(WAIT_S)
        trials = check_study(store, study, lab)
        assert [(trial.outcome, trial.attempt) for trial in trials] == [("ok", 1), ("ok", 1)]
    assert any("full" in words for words in said), said
