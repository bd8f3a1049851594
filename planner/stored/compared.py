"""Predicted against measured, of stored plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import median
from typing import Any

from costmodel.errors import InvalidInput
from db import records
from db.repositories import Repositories

Json = dict[str, Any]

_MOST_OF_A_PLAN = 1000


def study_compared(repos: Repositories, name: str) -> Json:
    """Every trial of a study, in their order.

    Raises:
        InvalidInput: there is no study of that name.
    """
    study = repos.studies.named(name)
    if study is None:
        raise InvalidInput("study", name, "no study of that name is stored")
    measured = {one.trial_number: one for one in repos.measurements.of_study(study.id)}
    candidates = {candidate.place: candidate.plan_id for candidate in repos.studies.candidates(study.id)}
    trials = repos.studies.trials(study.id)
    plans = {plan.id: plan for plan in repos.plans.get_many([candidates[trial.place] for trial in trials])}
    rows: list[Json] = [
        {"trial": trial.number}
        | _row(plans[candidates[trial.place]], measured.get(trial.number))
        | {"status": trial.outcome or "running"}
        for trial in trials
    ]
    # Studies of earlier versions have measurements, and no trials.
    rows = rows or [{"trial": number} | _row(_plan(repos, one.plan_id), one) for number, one in measured.items()]
    return {"study": study.name} | _compared(rows)


def plans_compared(repos: Repositories, plan_ids: Sequence[str]) -> Json:
    """Every measurement of some plans, plan by plan, the oldest first; a plan without any has a row all the same.

    Raises:
        InvalidInput: there is no such plan.
    """
    rows: list[Json] = []
    for plan_id in dict.fromkeys(plan_ids):
        plan = _plan(repos, plan_id)
        found = repos.measurements.list(plan_id=plan_id, limit=_MOST_OF_A_PLAN).items
        rows += [{"trial": one.trial_number} | _row(plan, one) for one in reversed(found)]
        if not found:
            rows.append({"trial": None} | _row(plan, None))
    return {"study": None} | _compared(rows)


def step_time_of(measured: records.Measurement, prediction: Json) -> float | None:
    """Seconds a step as measured, or those that a throughput alone means."""
    if measured.step_time_s is not None or measured.tokens_per_s_per_device is None:
        return measured.step_time_s
    predicted = float(prediction["step_time_s"])
    return predicted * float(prediction["tokens_per_s_per_device"]) / measured.tokens_per_s_per_device


def beside_predicted(measured: records.Measurement, prediction: Json) -> Json:
    """``predicted_step_time_s``, ``measured_over_predicted`` and ``inside_interval``; None where no time is known."""
    predicted, step = float(prediction["step_time_s"]), step_time_of(measured, prediction)
    low, high = prediction["step_time_interval_s"]
    return {
        "predicted_step_time_s": predicted,
        "measured_over_predicted": None if step is None else step / predicted,
        "inside_interval": None if step is None else low <= step <= high,
    }


def _plan(repos: Repositories, plan_id: str) -> records.Plan:
    plan = repos.plans.get(plan_id)
    if plan is None:
        raise InvalidInput("plan", plan_id, "the id of a stored plan is expected")
    return plan


def _row(plan: records.Plan, measured: records.Measurement | None) -> Json:
    prediction = plan.prediction
    memory = prediction["memory"]
    return {
        "plan_id": plan.id,
        "plan": plan.plan,
        "measurement_id": None if measured is None else measured.id,
        "status": None if measured is None else measured.status,
        "predicted_step_time_s": prediction["step_time_s"],
        "predicted_step_time_interval_s": prediction["step_time_interval_s"],
        "step_time_s": None if measured is None else step_time_of(measured, prediction),
        "measured_over_predicted": None,
        "inside_interval": None,
        **({} if measured is None else beside_predicted(measured, prediction)),
        "predicted_peak_bytes": memory["peak_bytes"],
        "predicted_reserved_bytes": memory.get("reserved_bytes"),
        "peak_allocated_bytes": None if measured is None else measured.peak_allocated_bytes,
        "peak_reserved_bytes": None if measured is None else measured.peak_reserved_bytes,
        "note": "" if measured is None else measured.note,
    }


def _compared(rows: Sequence[Json]) -> Json:
    timed = [row for row in rows if row["step_time_s"] is not None]
    ratios = [row["measured_over_predicted"] for row in timed]
    allocated = [row for row in rows if row["peak_allocated_bytes"]]
    memory = [row["peak_allocated_bytes"] / row["predicted_peak_bytes"] for row in allocated]
    return {
        "timed": len(timed),
        "measured_over_predicted": median(ratios) if ratios else None,
        "inside_interval": sum(row["inside_interval"] for row in timed),
        "pairs_in_order": _in_order(timed),
        "memory_over_predicted": median(memory) if memory else None,
        "rows": list(rows),
    }


def _in_order(timed: Iterable[Json]) -> float | None:
    """Share of the pairs of plans, of different predicted times, of which the faster one was also predicted so."""
    agree = [
        (one["predicted_step_time_s"] < other["predicted_step_time_s"]) == (one["step_time_s"] < other["step_time_s"])
        for one, other in combinations(timed, 2)
        if one["predicted_step_time_s"] != other["predicted_step_time_s"] and one["step_time_s"] != other["step_time_s"]
    ]
    return sum(agree) / len(agree) if agree else None
