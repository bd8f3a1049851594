"""The command that runs a plan in the probe."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from planner.profiling.runner import TrialJob

_JOB = "job.json"


def probe_job_file(trial: TrialJob) -> Path:
    """Write what the probe is told to run; returns its path."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    path = trial.folder / _JOB
    job = trial.job
    told = {
        "scenario": job.scenario.model_dump(mode="json"),
        "plan": job.plan.model_dump(mode="json"),
        "layers": sum(job.plan.layers_per_stage),
    }
    path.write_text(json.dumps(told) + "\n", encoding="utf-8")
    return path


def probe_words(trial: TrialJob) -> list[str]:
    """The probe as a module with its arguments, for a launcher to start on every device."""
    return [
        *("-m", "planner.profiling.probe"),
        *("--job", str(probe_job_file(trial)), "--out", str(trial.folder)),
        *("--steps", str(trial.steps), "--warm-up", str(trial.warm_up), "--timeout-s", f"{trial.timeout_s:g}"),
    ]


def torchrun_words(*more: str) -> list[str]:
    """PyTorch's launcher in this very environment."""
    return [sys.executable, "-m", "torch.distributed.run", *more]
