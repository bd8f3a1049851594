"""What really happened when plans ran."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from db.records.values import Json

MeasuredStatus = Literal["ok", "out_of_memory", "failed"]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    id: str
    plan_id: str
    study_id: str | None = None
    trial_number: int | None = None
    status: MeasuredStatus
    step_time_s: float | None
    tokens_per_s_per_device: float | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    steps: int | None
    job_id: str | None
    environment: Json
    note: str
    log_tail: str
    created_by: str | None
    measured_at: datetime
    created_at: datetime
