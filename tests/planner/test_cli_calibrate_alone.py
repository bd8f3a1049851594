"""``planner calibrate`` with logs of collectives and tables of kernels, as people and programs meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costmodel.calibration.calibration import load_calibration
from costmodel.catalog.cluster_catalog import load_cluster
from planner.cli.main import run
from tests.costmodel.microbenchmarks.logs import log, written

GEMMS = Path(__file__).parents[1] / "costmodel" / "microbenchmarks" / "h100_gemms.csv"
# Links that carry a third of what those of eight H100 do: an all-gather of 4 GiB puts 7/8 of it on each in 31.5 ms.
SLOW = (
    (1048576, 30.0),
    (4194304, 65.0),
    (67108864, 560.0),
    (268435456, 2050.0),
    (1073741824, 7958.8),
    (4294967296, 31498.0),
)


def slow(folder: Path) -> str:
    return written(folder, log("all_gather", SLOW), "slow.log")


def test_a_log_and_a_table_make_a_calibration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "own.json"
    options = ["--collectives", slow(tmp_path), "--gemm", str(GEMMS), "--out", str(out)]
    assert run(["calibrate", *options]) == 0
    told = capsys.readouterr()
    assert "36 GEMMs" in told.out
    assert "6 collectives" in told.out
    assert "dgx-h100" in told.out
    (line,) = (line for line in told.out.splitlines() if line.strip().startswith("scale_up_efficiency"))
    assert "h100-sxm5-80gb" in line
    now = load_calibration(str(out))
    (row,) = (
        row
        for row in now.parameters
        if (row.name, row.accelerator, row.framework) == ("scale_up_efficiency", "h100-sxm5-80gb", None)
    )
    assert row.provenance == "measured"
    assert row.standard_error
    assert f"{row.value:.4g}" in line
    assert row.value == pytest.approx(7 / 8 * 2**32 / 31.498e-3 / 450e9, rel=0.25)
    assert now.name == f"{load_calibration().name}-and-own"


def test_json_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "own.json"
    assert run(["calibrate", "--collectives", slow(tmp_path), "--out", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["alone"]["rows"] == {"collectives": 6}
    (moved,) = (row for row in answer["alone"]["moved"] if row["name"] == "scale_up_efficiency")
    assert moved["after"] < 0.5 * moved["before"]
    assert moved["standard_error"] > 0
    assert (moved["rows"], moved["sweeps"]) == (6, 1)
    assert answer["alone"]["median_errors"]["collectives"]["after"] < 0.2
    (sweep,) = answer["alone"]["collectives"]["dgx-h100"]
    assert (sweep["op"], sweep["ranks"], sweep["domains"]) == ("all_gather", 8, 1)
    assert answer["runs"] == 0


def test_the_measured_cluster_is_written_as_a_cluster_file(tmp_path: Path) -> None:
    out, cluster = tmp_path / "own.json", tmp_path / "mine.json"
    assert run(["calibrate", "--collectives", slow(tmp_path), "--out", str(out), "--cluster-out", str(cluster)]) == 0
    own = load_cluster(str(cluster))
    assert own.tiers == load_cluster("dgx-h100").tiers
    assert own.collectives[0].points == SLOW


def test_runs_begin_where_kernels_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text(
        "id,model_name,accelerator,devices,framework,precision,seq_len,global_batch,tp,pp,micro_batch,recompute,"
        "measured_step_time_s\n"
        "one,llama-3-8b,NVIDIA H100 80GB HBM3,8,megatron-core,bf16,8192,128,2,1,1,none,14.0\n"
    )
    out = tmp_path / "own.json"
    options = ["--runs", str(runs), "--collectives", slow(tmp_path), "--out", str(out), "--json"]
    assert run(["calibrate", *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["figures"] == {"time": 1}
    after = next(row["after"] for row in answer["alone"]["moved"] if row["name"] == "scale_up_efficiency")
    (row,) = (
        row
        for row in load_calibration(str(out)).parameters
        if (row.name, row.accelerator, row.framework) == ("scale_up_efficiency", "h100-sxm5-80gb", None)
    )
    assert row.value == pytest.approx(after, rel=0.05)


def test_from_the_priors_no_run_is_needed(tmp_path: Path) -> None:
    out = tmp_path / "own.json"
    assert run(["calibrate", "--base", "none", "--gemm", str(GEMMS), "--out", str(out)]) == 0
    now = load_calibration(str(out))
    assert now.name == "own"
    assert not now.fitted_to_carried_runs


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "runs: nothing is given"),
        (["--accelerator", "h100"], "runs: nothing is given"),
        (["--gemm", str(GEMMS), "--cluster", "dgx-h100"], "it is about --collectives"),
        (["--gemm", str(GEMMS), "--cluster-out", "x.json"], "it is about --collectives"),
        (["--gemm", "absent.csv"], "there is no such file"),
        (["--collectives", str(GEMMS)], "it is no log of nccl-tests"),
    ],
)
def test_what_can_not_be_used_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], expected: str
) -> None:
    out = tmp_path / "own.json"
    assert run(["calibrate", *options, "--out", str(out)]) == 2
    told = capsys.readouterr().err
    assert expected in told
    assert "Traceback" not in told
    assert not out.exists()
