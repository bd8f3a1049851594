"""Plans: figures for lists, whole documents, predictions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Whole32
from db.tables.base import Base, fingerprint_key


class PlanRow(Base):
    """A plan with the figures that lists sort and filter by. Narrow on purpose."""

    __tablename__ = "plans"

    id: Mapped[str] = fingerprint_key()
    scenario_id: Mapped[str] = mapped_column(ForeignKey("scenarios.id"))
    calibration_id: Mapped[str] = mapped_column(ForeignKey("calibrations.id"))
    cost_model_version: Mapped[str]
    tp: Mapped[int] = mapped_column(Whole32)
    pp: Mapped[int] = mapped_column(Whole32)
    vpp: Mapped[int] = mapped_column(Whole32)
    cp: Mapped[int] = mapped_column(Whole32)
    cp_comm_type: Mapped[str]
    ep: Mapped[int] = mapped_column(Whole32)
    etp: Mapped[int] = mapped_column(Whole32)
    dp: Mapped[int] = mapped_column(Whole32)
    dp_replicate: Mapped[int] = mapped_column(Whole32)
    dp_shard: Mapped[int] = mapped_column(Whole32)
    zero_stage: Mapped[int] = mapped_column(Whole32)
    micro_batch_size: Mapped[int] = mapped_column(Whole32)
    num_microbatches: Mapped[int] = mapped_column(Whole32)
    devices_used: Mapped[int] = mapped_column(Whole32)
    schedule: Mapped[str]
    recompute: Mapped[str]
    offload: Mapped[str]
    step_time_s: Mapped[float]
    tokens_per_s_per_device: Mapped[float]
    mfu: Mapped[float]
    peak_bytes: Mapped[int]
    created_at: Mapped[datetime]

    __table_args__ = (
        Index("ix_plans_scenario_id_step_time_s", "scenario_id", "step_time_s", "id"),
        Index("ix_plans_step_time_s_id", "step_time_s", "id"),
        Index("ix_plans_mfu_id", "mfu", "id"),
        Index("ix_plans_tokens_per_s_per_device_id", "tokens_per_s_per_device", "id"),
        Index("ix_plans_peak_bytes_id", "peak_bytes", "id"),
        Index("ix_plans_created_at_id", "created_at", "id"),
    )


class PlanDocumentRow(Base):
    """The whole plan as ``plan.json`` holds it."""

    __tablename__ = "plan_documents"

    plan_id: Mapped[str] = mapped_column(ForeignKey("plans.id", ondelete="CASCADE"), primary_key=True)
    plan: Mapped[dict[str, Any]]


class PredictionRow(Base):
    """What the cost model says of a plan: the terms of its time, the memory of every stage, how sure that is."""

    __tablename__ = "predictions"

    plan_id: Mapped[str] = mapped_column(ForeignKey("plans.id", ondelete="CASCADE"), primary_key=True)
    step_time_low_s: Mapped[float]
    step_time_high_s: Mapped[float]
    hfu: Mapped[float]
    usable_bytes: Mapped[int]
    provenance: Mapped[str]
    time: Mapped[dict[str, Any]]
    memory_stages: Mapped[list[Any]]
    # Everything of the prediction that is only shown: how its utilisation is defined, say. None before there was any.
    details: Mapped[dict[str, Any] | None]
