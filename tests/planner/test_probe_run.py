"""The probe as a program: under torchrun, out of memory, with a rank that hangs, and with plans that it can't run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from planner.profiling.probe.job import ProbeJob, job_text
from tests.planner.probe_jobs import MODELS, job
from tests.planner.probe_launch import PROBE, ended, started
from tests.processes import eventually

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: pip install '.[profiling]'")
_SECONDS = 240
_WIDE = MODELS["llama"] | {"vocab_size": 65_536, "hidden_size": 128, "name": "wide"}


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def _text(metrics: Path) -> str:
    return metrics.read_text() if metrics.exists() else ""


def _file(folder: Path, of: ProbeJob) -> str:
    path = folder / "job.json"
    path.write_text(job_text(of))
    return str(path)


@needs_torch
def test_torchrun_runs_it_at_a_reduced_depth(tmp_path: Path) -> None:
    of = job(dp=2, zero_stage=3, recompute="full").model_copy(update={"layers": None})
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    asked = ["--job", _file(tmp_path, of), "--out", str(tmp_path / "out"), "--steps", "2", "--warm-up", "1"]
    done = subprocess.run(
        [sys.executable, *command, "--rdzv-endpoint", "127.0.0.1:0", "-m", PROBE, *asked],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, *_, last = _lines(tmp_path / "out")
    assert first["environment"]["layers"] == 1
    assert first["environment"]["model"] == "tiny-1-layers"
    assert last == {"finished": True, "steps": 3}


@needs_torch
def test_out_of_memory_is_told_as_such(tmp_path: Path) -> None:
    of = job(dp=2)
    wide = of.scenario.model.model_validate(_WIDE)
    of = of.model_copy(update={"scenario": of.scenario.model_copy(update={"model": wide})})
    asked = ["--job", _file(tmp_path, of), "--out", str(tmp_path / "out"), "--memory-bytes", str(100 * 2**20)]
    with started(PROBE, [*asked, "--timeout-s", "60"], 2) as processes:
        codes, said = ended(processes, _SECONDS)
    assert 3 in codes, said[-3000:]
    (failed,) = [line for line in _lines(tmp_path / "out") if "failed" in line]
    assert failed["failed"] == "out_of_memory"
    assert "allocate" in failed["detail"]


@needs_torch
def test_a_rank_that_hangs_ends_the_others_in_time(tmp_path: Path) -> None:
    asked = ["--job", _file(tmp_path, job(dp=2)), "--out", str(tmp_path / "out")]
    with started(PROBE, [*asked, "--steps", "100000", "--timeout-s", "10"], 2) as processes:
        metrics = tmp_path / "out" / "metrics.jsonl"
        first = processes[0]
        assert eventually(lambda: first.poll() is not None or '"step": 2' in _text(metrics), _SECONDS)
        os.kill(processes[1].pid, signal.SIGSTOP)
        assert first.wait(timeout=_SECONDS) == 1
    (failed,) = [line for line in _lines(tmp_path / "out") if "failed" in line]
    assert failed["failed"] == "crash"
    assert failed["rank"] == 0


def test_what_it_cant_run_is_told_before_anything_starts(tmp_path: Path) -> None:
    of = job(tp=2, dp=2, zero_stage=1, micro_batch_size=1)
    plan = of.plan.model_copy(update={"offload": "optimizer"})
    with started(
        PROBE, ["--job", _file(tmp_path, of.model_copy(update={"plan": plan})), "--out", str(tmp_path)], 1
    ) as (process,):
        codes, said = ended([process], _SECONDS)
    assert codes == [2]
    assert "zero_stage 1: ZeroRedundancyOptimizer" in said
    assert "offload optimizer: the probe keeps everything on its devices" in said
    assert "Traceback" not in said
    assert [line["failed"] for line in _lines(tmp_path)] == ["refused"]


def test_other_devices_than_the_plan_uses_are_refused(tmp_path: Path) -> None:
    with started(PROBE, ["--job", _file(tmp_path, job(dp=2)), "--out", str(tmp_path)], 1) as processes:
        codes, said = ended(processes, _SECONDS)
    assert codes == [2]
    assert "the plan uses 2 devices" in said
