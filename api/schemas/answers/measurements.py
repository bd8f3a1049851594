"""Answers about what really happened."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from api.schemas.answers.base import Answer, Next
from api.schemas.text import Id


class Measurement(Answer):
    """What really happened, beside what was predicted of that plan."""

    id: Id
    plan_id: Id
    status: Literal["ok", "out_of_memory", "failed"]
    step_time_s: float | None
    """As it was measured; null when only a throughput was."""
    tokens_per_s_per_device: float | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    steps: int | None
    job_id: str | None
    environment: dict[str, Any]
    note: str
    log_tail: str
    measured_at: datetime
    created_at: datetime
    predicted_step_time_s: float
    measured_over_predicted: float | None
    """Measured step time, or the one that a measured throughput means, over the predicted one; null without either."""
    inside_interval: bool | None
    """Whether it lies inside the predicted interval."""


class MeasurementList(Answer):
    """A page of measurements, newest first."""

    items: list[Measurement]
    next: Next
