"""What really happened when plans ran."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Digest, Whole32
from db.tables.base import FINGERPRINT, Base

MEASURED_STATUSES = ("ok", "out_of_memory", "failed")


class MeasurementRow(Base):
    """What really happened when a plan ran."""

    __tablename__ = "measurements"

    id: Mapped[str] = mapped_column(Digest(FINGERPRINT), primary_key=True)
    plan_id: Mapped[str] = mapped_column(ForeignKey("plans.id"), index=True)
    study_id: Mapped[str | None] = mapped_column(ForeignKey("studies.id"))
    trial_number: Mapped[int | None] = mapped_column(Whole32)
    status: Mapped[str]
    step_time_s: Mapped[float | None]
    tokens_per_s_per_device: Mapped[float | None]
    peak_allocated_bytes: Mapped[int | None]
    peak_reserved_bytes: Mapped[int | None]
    steps: Mapped[int | None]
    job_id: Mapped[str | None] = mapped_column(index=True)
    environment: Mapped[dict[str, Any]]
    note: Mapped[str]
    log_tail: Mapped[str] = mapped_column(server_default="")
    created_by: Mapped[str | None]
    measured_at: Mapped[datetime]
    created_at: Mapped[datetime]

    __table_args__ = (
        CheckConstraint(f"status IN {MEASURED_STATUSES}", name="status"),
        UniqueConstraint("study_id", "trial_number"),
        Index("ix_measurements_created_at_id", "created_at", "id"),
    )
