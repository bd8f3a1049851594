"""``planner calibrate`` as people and programs meet it."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pytest

from costmodel.calibration.calibration import load_calibration
from costmodel.runs.columns import Run
from planner.cli.main import run
from tests.costmodel.fit.runs import as_if_measured, prior_calibration

COLUMNS = [field.name for field in fields(Run) if "column" in field.metadata]


def written(path: Path, runs: Sequence[Run]) -> str:
    file = path / "runs.csv"
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows([getattr(row, name) for name in COLUMNS] for row in runs)
    return str(file)


def few(level: float = 1.25) -> tuple[Run, ...]:
    return as_if_measured(load_calibration(), noise=0.01, study_level=level)[:4]


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["calibrate", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_own_runs_move_the_shipped_calibration_and_the_file_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "own.json"
    code, told, err = call(capsys, "--runs", written(tmp_path, few()), "--out", str(out), "--json")
    assert (code, err) == (0, "")
    found = json.loads(told)
    assert found["base"] == "published-2026-11"
    assert found["figures"] == {"time": 4}
    assert found["out"] == str(out)
    assert any(row["name"] == "time_level" and row["after"] > row["before"] for row in found["moved"])
    own, shipped = load_calibration(str(out)), load_calibration()
    assert own.name == "published-2026-11-and-own"
    assert {row.name for row in own.parameters} == {row.name for row in shipped.parameters}


def test_predictions_with_the_file_come_nearer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, out = written(tmp_path, few()), str(tmp_path / "own.json")
    assert call(capsys, "--runs", runs, "--out", out)[0] == 0

    def error(*arguments: str) -> float:
        assert run(["validate", "--runs", runs, "--json", *arguments]) == 0
        return float(json.loads(capsys.readouterr().out)["time_median_ape_all"])

    assert error("--calibration", out) < 0.5 * error()


def test_the_table_says_what_moved_from_where_to_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--runs", written(tmp_path, few()), "--out", str(tmp_path / "own.json"))
    assert code == 0
    assert "4 runs, 4 with a measured time; begun at published-2026-11" in out
    for word in ("time_level", "before", "after", "moved by more than their error", "own.json"):
        assert word in out


def test_runs_that_agree_move_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = as_if_measured(load_calibration(), noise=0.005)[:4]
    code, out, _ = call(capsys, "--runs", written(tmp_path, runs), "--out", str(tmp_path / "own.json"), "--json")
    assert code == 0
    assert json.loads(out)["moved"] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--out", "own.json"], "runs: "),
        (["--runs", "absent.csv", "--out", "own.json"], "absent.csv"),
        (["--runs", "RUNS", "--out", "own.txt"], "out: "),
        (["--runs", "RUNS", "--out", "nowhere/own.json"], "its directory doesn't exist"),
        (["--runs", "RUNS", "--base", "some", "--out", "own.json"], "some"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = written(tmp_path, few())
    code, _, err = call(capsys, *[runs if word == "RUNS" else word for word in arguments])
    assert code == 2
    assert told in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("own.*"))


def test_runs_without_measurements_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.csv"
    file.write_text("id,devices\na,8\n", encoding="utf-8")
    code, _, err = call(capsys, "--runs", str(file), "--out", str(tmp_path / "own.json"))
    assert code == 2
    assert "no row has a measured time or memory" in err


def test_priors_can_be_fitted_to_own_runs_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = as_if_measured(prior_calibration(), noise=0.01, study_level=1.2)[:6]
    out = str(tmp_path / "own.json")
    code, told, _ = call(capsys, "--runs", written(tmp_path, runs), "--base", "none", "--out", out, "--json")
    assert code == 0
    assert json.loads(told)["base"] == "none (priors-2026-11)"
    assert load_calibration(out).fitted_to_carried_runs is False
