"""Answers about what really happened."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from api.schemas.answers.base import Answer, Next
from api.schemas.text import Id


class ListedMeasurement(Answer):
    """A measurement in a list: all but what may be long."""

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
    note: str
    measured_at: datetime
    created_at: datetime
    predicted_step_time_s: float
    measured_over_predicted: float | None
    """Measured step time, or the one that a measured throughput means, over the predicted one; null without either."""
    inside_interval: bool | None
    """Whether it lies inside the predicted interval."""


class Measurement(ListedMeasurement):
    """What really happened, beside what was predicted of that plan."""

    environment: dict[str, Any]
    log_tail: str


class MeasurementList(Answer):
    """A page of measurements, newest first."""

    items: list[ListedMeasurement]
    next: Next
