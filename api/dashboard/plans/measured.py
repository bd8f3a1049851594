"""Runs that were measured, beside what was predicted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.dashboard.words import gib, seconds
from db import records
from db.repositories import Repositories
from planner.stored.compared import beside_predicted, step_time_of

Json = dict[str, Any]

MOST = 50
_OUTCOMES = {"ok": ("done", "ran"), "out_of_memory": ("failed", "out of memory"), "failed": ("failed", "failed")}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A measurement; texts are empty where nothing was measured.

    Attributes:
        state: how the outcome is coloured.
        ratio: measured over predicted step time.
        inside: whether it lies in the predicted interval, in words.
        memory_ratio: allocated over predicted peak.
    """

    id: str
    state: str
    outcome: str
    moment: datetime
    step_s: float | None
    step: str
    ratio: str
    inside: str
    memory: str
    memory_ratio: str
    job: str
    note: str


def runs_of(repos: Repositories, plan_id: str, prediction: Json, most: int = MOST) -> list[Run]:
    """The newest measurements of a plan."""
    return [_run(one, prediction) for one in repos.measurements.list(plan_id=plan_id, limit=most).items]


def _run(measured: records.Measurement, prediction: Json) -> Run:
    beside, step = beside_predicted(measured, prediction), step_time_of(measured, prediction)
    state, outcome = _OUTCOMES[measured.status]
    peak, predicted = measured.peak_allocated_bytes, prediction["memory"]["peak_bytes"]
    ratio, inside = beside["measured_over_predicted"], beside["inside_interval"]
    return Run(
        id=measured.id,
        state=state,
        outcome=outcome,
        moment=measured.measured_at,
        step_s=step,
        step="" if step is None else seconds(step),
        ratio="" if ratio is None else f"{ratio:.3f}",
        inside="" if inside is None else "yes" if inside else "no",
        memory=gib(peak),
        memory_ratio="" if not peak else f"{peak / predicted:.3f}",
        job=measured.job_id or "",
        note=measured.note,
    )
