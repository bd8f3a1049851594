"""``planner predict`` as a user runs it: the files, the exit codes, and what is said where."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import costmodel
from costmodel.runs.carried import default_runs
from planner.cli.main import run

HEADER = "id,feasible,step_time_s,step_time_low_s,step_time_high_s,peak_mem_gb,provenance,reason"
ROW = {
    "id": "a",
    "framework": "megatron",
    "model_name": "llama-3.1-8b",
    "accelerator": "NVIDIA H100 80GB HBM3",
    "devices": "64",
    "tp": "2",
    "pp": "1",
    "dp": "32",
    "micro_batch": "1",
    "global_batch": "128",
    "seq_len": "8192",
    "precision": "bf16",
    "recompute": "none",
    "zero_stage": "distopt",
}


def written(folder: Path, rows: Sequence[Mapping[str, Any]], name: str = "runs.csv") -> Path:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(dict.fromkeys(key for row in rows for key in row)))
    writer.writeheader()
    writer.writerows(rows)
    path = folder / name
    path.write_text(stream.getvalue(), encoding="utf-8")
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_one_row_in_one_row_out_by_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = written(tmp_path, [ROW, {"id": "b"}, ROW | {"id": "c", "accelerator": "Quantum9000"}])
    out = tmp_path / "predictions.csv"
    assert run(["predict", "--runs", str(runs), "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8").splitlines()[0] == HEADER
    first, second, third = read(out)
    assert [row["id"] for row in (first, second, third)] == ["a", "b", "c"]
    assert first["feasible"] == "1"
    assert float(first["step_time_low_s"]) < float(first["step_time_s"]) < float(first["step_time_high_s"])
    assert 5 < float(first["peak_mem_gb"]) < 80
    assert first["provenance"] in ("analytic", "calibrated")
    assert (second["feasible"], second["step_time_s"]) == ("", "")
    assert "seq_len" in second["reason"]
    assert "Quantum9000" in third["reason"]
    assert third["step_time_s"]
    told = capsys.readouterr()
    assert told.out == ""
    assert "2 of 3 rows predicted" in told.err


def test_a_dash_writes_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "--runs", str(written(tmp_path, [ROW])), "--out", "-"]) == 0
    assert capsys.readouterr().out.startswith(HEADER + "\na,1,")


def test_a_summary_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, out = written(tmp_path, [ROW, {"id": "b"}]), tmp_path / "out.csv"
    assert run(["predict", "--runs", str(runs), "--out", str(out), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["rows"], summary["predicted"], summary["infeasible"]) == (2, 1, 0)
    assert sum(summary["unpredicted"].values()) == 1


def test_what_is_wrong_with_a_row_is_told_and_the_others_are_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, out = written(tmp_path, [ROW | {"tp": "eight"}, ROW | {"id": "good"}]), tmp_path / "out.csv"
    assert run(["predict", "--runs", str(runs), "--out", str(out)]) == 0
    told = capsys.readouterr().err
    assert "row 2, column tp: 'eight'" in told
    bad, good = read(out)
    assert "column tp" in bad["reason"]
    assert good["step_time_s"]
    assert "column" not in good["reason"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no such file"),
        ("", "runs"),
        ("name,tp\nx,1\n", "id"),
        ("\x00\x01\x02", "runs"),
    ],
)
def test_a_file_that_holds_no_runs_is_bad_input_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    runs, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    if content is not None:
        runs.write_text(content, encoding="utf-8")
    assert run(["predict", "--runs", str(runs), "--out", str(out)]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("where", ["", "missing/out.csv"])
def test_a_place_that_cannot_be_written_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    runs = written(tmp_path, [ROW])
    assert run(["predict", "--runs", str(runs), "--out", str(tmp_path / where)]) == 2
    assert capsys.readouterr().err.startswith("planner: out:")


def test_an_older_file_is_replaced_whole(tmp_path: Path) -> None:
    runs, out = written(tmp_path, [ROW]), tmp_path / "out.csv"
    out.write_text("old\n" * 1000, encoding="utf-8")
    assert run(["predict", "--runs", str(runs), "--out", str(out)]) == 0
    assert len(read(out)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "runs.csv"]


def test_an_unknown_calibration_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, out = written(tmp_path, [ROW]), tmp_path / "out.csv"
    assert run(["predict", "--runs", str(runs), "--out", str(out), "--calibration", "nobody-s"]) == 2
    assert "calibration" in capsys.readouterr().err


def test_the_carried_runs_are_predicted_in_one_call(tmp_path: Path) -> None:
    carried = default_runs()
    source = Path(costmodel.__file__).parent / "catalog" / "runs" / "measured_runs.csv"
    out = tmp_path / "out.csv"
    assert run(["predict", "--runs", str(source), "--out", str(out)]) == 0
    rows = read(out)
    assert [row["id"] for row in rows] == [carried_run.id for carried_run in carried]
    assert all(row["reason"] for row in rows if not row["step_time_s"])


def test_the_runs_file_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = written(tmp_path, [ROW])
    before = runs.read_text(encoding="utf-8")
    (tmp_path / "link.csv").symlink_to(runs)
    for out in (runs, tmp_path / "link.csv"):
        assert run(["predict", "--runs", str(runs), "--out", str(out)]) == 2
        assert "it is the runs file" in capsys.readouterr().err
    assert runs.read_text(encoding="utf-8") == before


def test_a_link_is_followed(tmp_path: Path) -> None:
    runs, real, link = written(tmp_path, [ROW]), tmp_path / "real.csv", tmp_path / "link.csv"
    link.symlink_to(real)
    assert run(["predict", "--runs", str(runs), "--out", str(link)]) == 0
    assert link.is_symlink()
    assert len(read(real)) == 1
