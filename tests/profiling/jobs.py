"""Trials to start: a plan of the search that nothing looks at closely, in a folder of the test's own."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from costmodel.fingerprint import digest
from planner.export.job import Job
from planner.profiling.runner import TrialJob
from tests.planner.probe_jobs import job


@cache
def job_of_two() -> Job:
    of = job(dp=2)
    return Job(scenario=of.scenario, plan=of.plan)


def trial(folder: Path, **more: object) -> TrialJob:
    # By its key everything of a trial is ended, so no other test may have the same.
    key = f"planner-test-{digest(str(folder))[:12]}"
    how = {"key": key, "job": job_of_two(), "folder": folder / "trial", "steps": 2, "warm_up": 1}
    return TrialJob(**(how | {"timeout_s": 600.0} | more))  # type: ignore[arg-type]
