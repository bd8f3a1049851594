"""What the probe measures of a machine is what ``planner calibrate`` and ``--cluster`` read."""

from __future__ import annotations

import json
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from costmodel.calibration.calibration import load_calibration
from costmodel.calibration.microbenchmarks.collective_log import read_collective_log
from costmodel.calibration.microbenchmarks.kernel_table import read_kernel_table
from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.runs.reader import problems_of, read_runs
from planner.cli.main import run
from planner.profiling.probe.facts import MachineFacts
from planner.profiling.probe.lines import Lines
from planner.profiling.probe.machine import Measurements, Sweep
from planner.profiling.probe.run_row import run_text
from tests.planner.probe_jobs import job
from tests.planner.probe_launch import PROBE, ended, started

_PEAK = 80e9
_DEVICE = "cpu-anybody-s-2-threads"
_FACTS = MachineFacts(device=_DEVICE, host="box", backend="gloo", ranks=4, memory_bytes=2**33, threads=2)
_SIZES = (64, 256, 1024)
# 500 us and 0.5 GB/s, in the directions and passes of a ring of four.
_PASSES = {"all_reduce": 1.5, "all_gather": 0.75, "reduce_scatter": 0.75, "all_to_all": 0.75, "send_recv": 1.0}


def _measured() -> Measurements:
    rows = [(m, n, k) for m, n, k in product(_SIZES, _SIZES, _SIZES)]
    sizes = [4**power * 1024 for power in range(9)]
    sweeps = [
        Sweep(op=op, points=tuple((size, 500e-6 + passes * size / 0.5e9) for size in sizes))  # type: ignore[arg-type]
        for op, passes in _PASSES.items()
    ]
    return Measurements(
        facts=_FACTS,
        gemms=tuple(("fp32", m, n, k, 2.0 * m * n * k / _PEAK) for m, n, k in rows),
        attention=(("fp32", "fwd", 1, 1024, 4, 64, 0.01), ("fp32", "bwd", 1, 1024, 4, 64, 0.025)),
        memory=((2**20, 2**20 / 40e9), (2**28, 2**28 / 8e9)),
        sweeps=tuple(sweeps),
    )


def _written(folder: Path, measured: Measurements) -> None:
    for name, text in measured.files().items():
        (folder / name).write_text(text)


def test_every_file_reads_as_what_was_measured(tmp_path: Path) -> None:
    _written(tmp_path, _measured())
    gemms = read_kernel_table(str(tmp_path / "gemms.csv")).gemms
    assert len(gemms) == 27
    assert [row.flops_per_s for row in gemms] == [pytest.approx(_PEAK)] * 27
    there, back = read_kernel_table(str(tmp_path / "attention.csv")).attention
    assert (there.backward, back.backward, back.seconds) == (False, True, pytest.approx(0.025))
    for op in _PASSES:
        (sweep,), passed_over = read_collective_log(str(tmp_path / f"{op}.log"))
        assert passed_over == ()
        assert (sweep.op, sweep.ranks, sweep.hosts, sweep.device) == (op, 4, 1, _DEVICE)
        assert sweep.points[0] == (1024, pytest.approx(500.0, rel=0.1))


def test_the_machine_is_a_cluster(tmp_path: Path) -> None:
    _written(tmp_path, _measured())
    cluster = load_cluster(str(tmp_path / "this-machine.yaml"))
    assert (cluster.devices_per_node, cluster.max_devices) == (4, 4)
    assert cluster.accelerator.family == "cpu"
    assert cluster.accelerator.peak("fp32") == pytest.approx(_PEAK)
    # Of the pass that no cache holds.
    assert cluster.accelerator.memory_bandwidth_bytes_per_s == pytest.approx(8e9)
    assert cluster.tiers[0].bandwidth_bytes_per_s == pytest.approx(0.5e9, rel=0.01)
    assert {sweep.op for sweep in cluster.collectives} == set(_PASSES)


def test_a_known_device_extends_its_usual_cluster(tmp_path: Path) -> None:
    device = "NVIDIA H100 80GB HBM3"
    facts = MachineFacts(device=device, host="box", backend="nccl", ranks=4, memory_bytes=2**36)
    of = _measured()
    _written(tmp_path, Measurements(facts=facts, gemms=of.gemms, memory=of.memory, sweeps=of.sweeps))
    cluster = load_cluster(str(tmp_path / "this-machine.yaml"))
    assert cluster.accelerator.name == "h100-sxm5-80gb"
    assert cluster.tiers == load_cluster("dgx-h100").tiers
    assert cluster.collectives[0].ranks == 4


def _run_text(folder: Path) -> str | None:
    of, lines = job(dp=2, zero_stage=3, optimizer="adamw"), Lines(str(folder))
    lines.begin()
    lines.say({"environment": {"host": "box", "torch": "2.13.0", "device": _DEVICE, "notes": []}})
    for step, seconds in enumerate((9.0, 0.5, 0.25, 0.75)):
        lines.say({"step": step, "step_time_s": seconds} | ({"warm_up": True} if step == 0 else {}))
    return run_text(of, lines.path)


def test_a_run_is_a_row_with_the_median_of_what_counts(tmp_path: Path) -> None:
    text = _run_text(tmp_path)
    assert text is not None
    (tmp_path / "run.csv").write_text(text)
    (row,) = read_runs(str(tmp_path / "run.csv"))
    assert not problems_of([row])
    assert row.measured_step_time_s == 0.5
    assert (row.layers, row.dp, row.zero_stage, row.compile) == (4, 2, "3", False)


def test_what_runs_csv_has_no_words_for_is_no_row(tmp_path: Path) -> None:
    lines = Lines(str(tmp_path))
    lines.begin()
    assert run_text(job(dp=2, optimizer="sgd"), lines.path) is None
    assert run_text(job(dp=2, optimizer="adamw"), lines.path) is None


def test_calibrate_learns_from_the_machine_and_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _written(tmp_path, _measured())
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "run.csv").write_text(_run_text(tmp_path / "trial") or "")
    out = tmp_path / "own.json"
    assert run(["calibrate", "--probe", str(tmp_path), "--out", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["alone"]["rows"] == {"GEMMs": 27, "attention cores": 2, "collectives": 45}
    assert answer["figures"] == {"time": 1}
    moved = {row["name"]: row for row in answer["alone"]["moved"]}
    assert moved["scale_out_hop_s"]["accelerator"] == _DEVICE
    assert moved["scale_out_hop_s"]["after"] > moved["scale_out_hop_s"]["before"]
    own = [row for row in load_calibration(str(out)).parameters if row.accelerator == _DEVICE]
    assert {row.provenance for row in own} >= {"measured"}


def test_sweeps_of_a_machine_stay_in_its_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _written(tmp_path, _measured())
    out, cluster = str(tmp_path / "own.json"), tmp_path / "cluster.json"
    assert run(["calibrate", "--probe", str(tmp_path), "--out", out, "--cluster-out", str(cluster)]) == 2
    assert "the catalog doesn't have it" in capsys.readouterr().err
    assert not cluster.exists()


@pytest.mark.parametrize(
    ("folders", "expected"),
    [(["absent"], "a folder that the probe has written to"), (["."], "it holds neither run.csv nor gemms.csv")],
)
def test_folders_of_no_use_are_bad_input(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folders: list[str],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [option for folder in folders for option in ("--probe", folder)]
    assert run(["calibrate", *options, "--out", "own.json"]) == 2
    assert expected in capsys.readouterr().err


def test_two_machines_are_not_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        _written(tmp_path / name, _measured())
    for folders in ([tmp_path], [tmp_path / "a", tmp_path / "b"]):
        options = [option for folder in folders for option in ("--probe", str(folder))]
        assert run(["calibrate", *options, "--out", str(tmp_path / "own.json")]) == 2
        assert "2 machines were measured there" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: pip install '.[profiling]'")
def test_this_machine_can_be_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with started(PROBE, ["--measure", "--out", str(tmp_path), "--seconds-each", "0.001"], 2) as processes:
        codes, said = ended(processes, 300)
    assert codes == [0, 0], said[-3000:]
    cluster = load_cluster(str(tmp_path / "this-machine.yaml"))
    assert 1e9 < cluster.accelerator.peak("fp32") < 1e13
    assert 1e8 < cluster.accelerator.memory_bandwidth_bytes_per_s < 1e12
    assert len(cluster.collectives) == 5
    assert run(["calibrate", "--probe", str(tmp_path), "--out", str(tmp_path / "own.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["alone"]["rows"]["collectives"] == 45
