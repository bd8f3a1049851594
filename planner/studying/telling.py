"""A study as ``planner tune --json`` prints it and the API answers it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from db import records
from planner.stored.compared import beside_predicted
from planner.studying.progress import Progress
from planner.wording import plan_in_short

Json = dict[str, Any]


def study_in_words(progress: Progress) -> Json:
    """``{id, name, state, ended_because, runner, best, trials: [...], ...}``; seconds and bytes as everywhere."""
    best = progress.best
    return {
        **study_alone(progress.study),
        "candidates": len(progress.candidates),
        "best": None if best is None else best[0].number,
        "trials": [trial_in_words(progress, trial) for trial in progress.trials],
    }


def study_alone(study: records.Study) -> Json:
    """A study without what its trials say; steps and seed are None in studies of earlier versions."""
    settings = study.settings.get("trials", {})
    return {
        "id": study.id,
        "name": study.name,
        "scenario_id": study.scenario_id,
        "state": study.state,
        "ended_because": study.ended_because,
        "runner": study.runner,
        "most_trials": study.most_trials,
        "deadline": _moment(study.deadline),
        "steps": settings.get("steps"),
        "warm_up": settings.get("warm_up"),
        "seed": study.settings.get("seed"),
        "created_at": _moment(study.created_at),
        "ended_at": _moment(study.ended_at),
    }


def trial_in_words(progress: Progress, trial: records.Trial) -> Json:
    """A trial with what was predicted of its plan and what was measured."""
    plan, measured = progress.plans[trial.place], progress.measurements.get(trial.number)
    beside = {} if measured is None else beside_predicted(measured, plan.prediction)
    return {
        "number": trial.number,
        "state": trial.state,
        "outcome": trial.outcome,
        "reason": trial.reason,
        "origin": progress.candidates[trial.place].origin,
        "plan_id": plan.id,
        "plan": plan.plan,
        "attempt": trial.attempt,
        "worker": trial.owner,
        "gain": trial.details.get("gain"),
        "chance_to_fit": trial.details.get("chance_to_fit"),
        "predicted_step_time_s": plan.prediction["step_time_s"],
        "predicted_step_time_interval_s": list(plan.prediction["step_time_interval_s"]),
        "predicted_peak_bytes": plan.prediction["memory"]["peak_bytes"],
        "measurement_id": None if measured is None else measured.id,
        "step_time_s": None if measured is None else measured.step_time_s,
        "measured_over_predicted": beside.get("measured_over_predicted"),
        "peak_allocated_bytes": None if measured is None else measured.peak_allocated_bytes,
        "peak_reserved_bytes": None if measured is None else measured.peak_reserved_bytes,
        "created_at": _moment(trial.created_at),
        "ended_at": _moment(trial.ended_at),
    }


def begins_in_words(trial: records.Trial, plan: records.Plan) -> str:
    """``trial 3 begins, dp2 zero0 mbs2: 1.4 s a step are predicted``."""
    predicted = float(plan.prediction["step_time_s"])
    return f"trial {trial.number} begins, {plan_in_short(plan.plan)}: {predicted:.4g} s a step are predicted"


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
