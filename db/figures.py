"""Figures that contradict each other: the terms of predictions, the best values of answers.

Neither is under a fingerprint, so a figure that was changed with all that belongs to it is not noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose
from typing import Any

from sqlalchemy import Connection, Row, select

from db import records
from db.findings import ROWS_AT_ONCE, Finding, stream
from db.repositories import Repositories
from db.tables import ClusterRow, PlanRow, ScenarioRow, SearchPlanRow, SearchRow

_RELATIVE = 1e-6
_SECONDS_PER_HOUR = 3600.0


def contradictions(connection: Connection) -> Iterator[Finding]:
    """All of them."""
    for plan in Repositories(connection).plans.everything(ROWS_AT_ONCE):
        yield from _of_prediction(plan)
    yield from _of_answers(connection)


def _of_prediction(plan: records.Plan) -> Iterator[Finding]:
    """What can't be of a prediction, whatever it rests on."""
    prediction, memory = plan.prediction, plan.prediction["memory"]
    step, (low, high) = prediction["step_time_s"], prediction["step_time_interval_s"]
    try:
        total = sum(prediction["time"].values())
        fullest = max(sum(stage.values()) for stage in memory["stages"])
        terms = max(len(stage) for stage in memory["stages"])
        tokens = plan.plan["global_batch_size"] * plan.plan["seq_len"] / plan.plan["devices_used"]
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        yield Finding("predictions", plan.id, "its terms can't be read")
        return
    if not isclose(total, step, rel_tol=_RELATIVE):
        yield Finding("predictions", plan.id, f"its terms sum to {total:g} s, its step takes {step:g} s")
    if not low <= step <= high:
        yield Finding("predictions", plan.id, f"its step of {step:g} s lies outside its interval")
    # Every term was rounded by itself.
    if abs(fullest - memory["peak_bytes"]) > terms:
        yield Finding("predictions", plan.id, f"its fullest stage has {fullest} bytes, not {memory['peak_bytes']}")
    if not isclose(prediction["tokens_per_s_per_device"] * step, tokens, rel_tol=_RELATIVE):
        yield Finding("predictions", plan.id, "its tokens per second do not fit to its step time")


def _of_answers(connection: Connection) -> Iterator[Finding]:
    """Best values against the plan of the first rank."""
    query = (
        select(
            SearchRow.id,
            SearchRow.objective,
            SearchRow.best,
            SearchRow.question,
            PlanRow.step_time_s,
            PlanRow.devices_used,
            ClusterRow.price_per_device_hour,
        )
        .join(ScenarioRow, ScenarioRow.id == SearchRow.scenario_id)
        .join(ClusterRow, ClusterRow.id == ScenarioRow.cluster_id)
        .outerjoin(SearchPlanRow, (SearchPlanRow.search_id == SearchRow.id) & (SearchPlanRow.rank == 1))
        .outerjoin(PlanRow, PlanRow.id == SearchPlanRow.plan_id)
        .where(SearchRow.state == "done")
        .order_by(SearchRow.id)
    )
    for row in stream(connection, query):
        if (row.best is None) != (row.step_time_s is None):
            yield Finding("searches", row.id, "it has a best value without a plan, or a plan without one")
        elif row.best is not None:
            expected = _best(row)
            if expected is not None and not isclose(row.best, expected, rel_tol=_RELATIVE):
                yield Finding("searches", row.id, f"its best is {row.best:g}, its first plan has {expected:g}")


def _best(row: Row[Any]) -> float | None:
    """What the best value should be; None where nothing says what a device costs."""
    if row.objective == "fewest_devices":
        return float(row.devices_used)
    if row.objective == "step_time":
        return float(row.step_time_s)
    own = row.question.get("price_per_device_hour") if isinstance(row.question, dict) else None
    price = row.price_per_device_hour if own is None else own
    return None if price is None else float(price * row.devices_used * row.step_time_s / _SECONDS_PER_HOUR)
