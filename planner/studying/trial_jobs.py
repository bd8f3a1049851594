"""What a trial runs: its plan, its files, and what a former owner may have left of it."""

from __future__ import annotations

from pathlib import Path

from costmodel.spec.plan import Plan
from db import records
from db.store import Store
from planner.export.job import Job
from planner.profiling.runner import Runner, TrialJob
from planner.studying.opening import request_of_study, settings_of


def job_of(store: Store, study: records.Study, trial: records.Trial) -> tuple[records.Plan, Job]:
    """The plan of a trial, as stored and as a job."""
    with store.reading() as repos:
        plan = repos.plans.get(repos.studies.candidates(study.id)[trial.place].plan_id)
        request = request_of_study(repos, study)
    assert plan is not None, "foreign keys hold"
    name = f"{study.name}-{trial.number}"
    return plan, Job(scenario=request.scenario, plan=Plan.model_validate(plan.plan), name=name, plan_id=plan.id)


def task_of(folder: Path, study: records.Study, trial: records.Trial, job: Job, attempt: int) -> TrialJob:
    """An attempt at a trial, with a key and a folder of its own below ``folder``."""
    settings = settings_of(study)
    return TrialJob(
        key=f"planner-{study.id[:12]}-{trial.number}-{attempt}",
        job=job,
        folder=folder.resolve() / study.id / f"{trial.number}-{attempt}",
        steps=settings.steps,
        warm_up=settings.warm_up,
        timeout_s=settings.step_timeout_s,
    )


def found_again(
    folder: Path, study: records.Study, trial: records.Trial, job: Job, runner: Runner
) -> tuple[TrialJob, str] | None:
    """What a former owner started and still runs, or has ended by itself; what is half dead is cleared away."""
    # Whoever had it last may have died before it could note what it started.
    for attempt in range(trial.attempt - 1, 0, -1):
        task = task_of(folder, study, trial, job, attempt)
        noted = trial.details.get("key") == task.key
        handle = trial.handle if noted and trial.handle else runner.find(task)
        if handle is None:
            continue
        state = runner.state(handle, task)
        if state == "done" or (runner.outlives_worker and state in ("waiting", "running")):
            return task, handle
        runner.stop(handle, task)
    return None
