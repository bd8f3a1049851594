"""``planner validate`` as people and programs meet it, with a predictor whose errors are known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import costmodel.runs
from costmodel.calibration.calibration import Calibration
from costmodel.runs.columns import Run
from costmodel.runs.prediction import RunPrediction
from planner.cli.main import run

SLOWER_THAN_MEASURED = 1.25


class Predictors:
    """Stands for ``costmodel.runs.predictions``: says of every run a time a quarter longer than was measured."""

    @staticmethod
    def predict_runs(runs: Sequence[Run], calibration: Calibration) -> list[RunPrediction]:
        assert calibration.parameters
        return [_prediction(run) for run in runs]


def _prediction(measured: Run) -> RunPrediction:
    seconds = measured.measured_step_time_s
    if seconds is None:
        return RunPrediction(id=measured.id, reason="no idea")
    seconds *= SLOWER_THAN_MEASURED
    return RunPrediction(
        id=measured.id,
        feasible=True,
        step_time_s=seconds,
        step_time_low_s=0.7 * seconds,
        step_time_high_s=1.4 * seconds,
        peak_mem_gb=measured.measured_peak_mem_gb,
    )


@pytest.fixture(autouse=True)
def known_predictor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costmodel.runs, "predictions", Predictors, raising=False)


HEADER = (
    "id,group,framework,accelerator,precision,devices,tp,n_params_b,seq_len,global_batch,measured_step_time_s,outcome"
)


def rows(groups: int = 6, per_group: int = 5) -> list[str]:
    return [
        f"{group}-{tp},study{group % 2}/g{group}/c,megatron,H100,bf16,60,{tp},8,4096,64,{1 + tp / 10},ok"
        for group in range(groups)
        for tp in range(1, per_group + 1)
    ]


def written(path: Path, lines: Sequence[str], header: str = HEADER) -> str:
    file = path / "runs.csv"
    file.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return str(file)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["validate", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, _ = call(capsys, *arguments, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_json_has_the_figures_of_the_predictor_at_the_top(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--runs", written(tmp_path, rows()))
    assert (found["runs"], found["scorable"], found["coverage"]) == (30, 30, 1.0)
    assert found["time_median_ape_macro"] == pytest.approx(0.25)
    assert found["time_bias_all"] == pytest.approx(0.25)
    assert found["interval_coverage"] == 1.0
    assert (found["cells"], found["spearman_mean"]) == (2, pytest.approx(1.0))
    assert found["problems"] == []
    assert found["per_study"]["study0"]["n"] == 15
    assert {"constant_mfu", "one_line"} == found["baselines"].keys()
    assert found["baselines"]["constant_mfu"]["coverage"] == 1.0
    assert (found["judged"], found["not_judged"]) == (30, {})
    assert "as_calibrated" not in found
    assert found["in_sample"] is False


def test_folds_bring_figures_of_groups_that_no_fit_saw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--runs", written(tmp_path, rows(groups=4)), "--folds", "2")
    assert found["folds"] == 2
    assert found["in_sample"] is False
    assert found["as_calibrated"]["time_median_ape_macro"] == pytest.approx(0.25)
    # The runs err alike, so those of other groups teach most of it.
    assert found["time_median_ape_macro"] != found["as_calibrated"]["time_median_ape_macro"]
    assert "unseen" not in found


def test_the_carried_runs_are_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys)
    assert found["runs"] == 2972
    assert found["time_median_ape_macro"] == pytest.approx(0.25)
    assert found["not_covered"]["no idea"] > 0
    assert found["not_judged"]["task 'lora' is not pretraining"] == 27
    assert found["judged"] + sum(found["not_judged"].values()) == found["runs"]


def test_the_table_names_every_predictor_and_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "--runs", written(tmp_path, rows()), "--folds", "2")
    assert (code, err) == (0, "")
    for title in (
        "planner",
        "held out",
        "constant 40 % MFU",
        "one-line formula",
        "study0",
        "study1",
    ):
        assert title in out
    row = next(line for line in out.splitlines() if "time: median error, mean over studies" in line)
    assert "25.0%" in row
    (footnote,) = (line for line in out.splitlines() if line.startswith("Held out:"))
    assert "without its group" in footnote


def test_without_folds_nothing_is_said_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "--runs", written(tmp_path, rows()))
    assert "held out" not in out.lower()


@pytest.mark.parametrize("outcome", ["success", "OK", "completed", ""])
@pytest.mark.parametrize("task", ["pretraining", "pre-train", "Pretrain", ""])
def test_usual_spellings_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str, outcome: str
) -> None:
    lines = [f"{line.removesuffix('ok')}{outcome},{task}" for line in rows()]
    found = answer(capsys, "--runs", written(tmp_path, lines, f"{HEADER},task"))
    assert (found["scorable"], found["coverage"], found["not_judged"]) == (30, 1.0, {})


def test_runs_that_are_not_judged_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = rows()
    lines[:2] = [line.replace(",ok", ",fell over") for line in lines[:2]]
    file = written(tmp_path, lines)
    code, out, err = call(capsys, "--runs", file)
    assert (code, err) == (0, "")
    told = out.splitlines()
    reason = "outcome 'fell over' is not understood; ok, oom or fail is expected"
    assert told[told.index("Judged on neither time nor memory:") + 1] == f"  2 x {reason}"
    found = answer(capsys, "--runs", file)
    assert (found["scorable"], found["not_judged"]) == (28, {reason: 2})


def test_when_no_run_can_be_judged_one_warning_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.replace(",ok", f",odd{number % 5}") for number, line in enumerate(rows())]
    file = written(tmp_path, lines)
    code, out, err = call(capsys, "--runs", file, "--folds", "2")
    assert code == 0
    (warning,) = err.splitlines()
    assert warning.startswith(
        "planner: warning: runs: none of 30 can be judged on time or memory: 6 x outcome 'odd0' is not understood"
    )
    assert warning.endswith("; 2 more reasons, see --json")
    coverage = next(line for line in out.splitlines() if "of these, predicted " in line)
    assert set(coverage.split("predicted")[1].split()) == {"-"}
    found = answer(capsys, "--runs", file)
    assert (found["scorable"], found["coverage"], found["judged"]) == (0, None, 0)
    assert len(found["not_judged"]) == 5


def test_names_with_brackets_are_printed_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.replace("study0/", "[bold]s/") for line in rows()]
    _, out, _ = call(capsys, "--runs", written(tmp_path, lines))
    assert "[bold]s" in out


def test_problems_of_rows_are_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.replace(",H100,bf16,60,", ",H100,bf16,sixty,") for line in rows()]
    file = written(tmp_path, lines)
    code, _, err = call(capsys, "--runs", file)
    assert code == 0
    assert (
        err.splitlines()[0]
        == "planner: warning: runs: row 2, column devices: 'sixty' is not a whole number; taken as blank"
    )
    assert err.splitlines()[-1] == "planner: warning: runs: 27 more problems, see --json"
    assert len(answer(capsys, "--runs", file)["problems"]) == 30


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--runs", "absent.csv"], ["runs", "absent.csv", "no such file"]),
        (["--runs", "unmeasured.csv"], ["runs", "unmeasured.csv", "measured_step_time_s"]),
        (["--runs", "empty.csv"], ["runs", "empty.csv", "empty"]),
        (["--folds", "1"], ["folds", "1", "2 to 20"]),
        (["--folds", "x"], ["folds", "'x'", "whole number"]),
        (["--runs", "runs.csv", "--folds", "7"], ["folds", "7", "6 groups"]),
        (["--calibration", "nothing-like-it"], ["calibration", "nothing-like-it"]),
        (["--calibration", "absent.json"], ["calibration", "absent.json", "no such file"]),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, rows())
    (tmp_path / "unmeasured.csv").write_text("id,tp\na,8\n", encoding="utf-8")
    (tmp_path / "empty.csv").write_text("", encoding="utf-8")
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    for word in said:
        assert word in err
    code, out, err = call(capsys, *arguments, "--json")
    assert (code, err) == (2, "")
    assert json.loads(out)["field"] == said[0]
