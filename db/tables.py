"""The tables, as SQLAlchemy sees them. Only ``db`` knows these classes; everyone else gets ``db.records``.

What people filter or sort by is a column. What is only shown (a plan's layers, the terms of a prediction) is a JSON
document in a row of its own, so that ``plans`` stays narrow and a scan of a hundred thousand of them stays fast.
Ids of what has content (models, clusters, scenarios, calibrations, plans) are fingerprints of that content; such rows
are written once and never changed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    ForeignKey,
    Index,
    MetaData,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from db.column_types import Digest, Finite, PlainText, UtcDateTime, Whole32, Whole64

FINGERPRINT = 32
"""Hex digits of an id that is a fingerprint: 128 bits."""

_NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """All tables of the planner."""

    metadata = MetaData(naming_convention=_NAMING)
    type_annotation_map = {  # noqa: RUF012  # SQLAlchemy reads a plain dict
        str: PlainText,
        int: Whole64,
        float: Finite,
        datetime: UtcDateTime,
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
    }


def _fingerprint_key() -> Mapped[str]:
    return mapped_column(Digest(FINGERPRINT), primary_key=True)


class ModelRow(Base):
    """A model that something was asked about."""

    __tablename__ = "models"

    id: Mapped[str] = _fingerprint_key()
    name: Mapped[str] = mapped_column(index=True)
    params_total: Mapped[int]
    params_active: Mapped[int]
    num_layers: Mapped[int] = mapped_column(Whole32)
    source: Mapped[str]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class ClusterRow(Base):
    """A cluster that something was asked about."""

    __tablename__ = "clusters"

    id: Mapped[str] = _fingerprint_key()
    name: Mapped[str] = mapped_column(index=True)
    accelerator: Mapped[str] = mapped_column(index=True)
    devices_per_node: Mapped[int] = mapped_column(Whole32)
    max_devices: Mapped[int | None]
    price_per_device_hour: Mapped[float | None]
    source: Mapped[str]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class CalibrationRow(Base):
    """A calibration that something was answered under."""

    __tablename__ = "calibrations"

    id: Mapped[str] = _fingerprint_key()
    name: Mapped[str] = mapped_column(index=True)
    retrieved: Mapped[str]
    source: Mapped[str]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class ScenarioRow(Base):
    """What is given: a model on devices of a cluster, with a batch, in a precision, under a framework."""

    __tablename__ = "scenarios"

    id: Mapped[str] = _fingerprint_key()
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), index=True)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id"), index=True)
    devices: Mapped[int]
    global_batch_size: Mapped[int]
    seq_len: Mapped[int]
    precision: Mapped[str]
    optimizer: Mapped[str]
    framework: Mapped[str]
    framework_version: Mapped[str]
    min_free_bytes: Mapped[int | None]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


SEARCH_STATES = ("queued", "running", "done", "failed", "cancelled")
LIVE = "state IN ('queued', 'running')"


class SearchRow(Base):
    """One search: what was asked, who works on it until when, and what came out.

    ``key`` is the question with the calibration and the code that answers it; ``problem_key`` the question alone.
    At most one search per (key, seed, max_seconds) is alive.
    """

    __tablename__ = "searches"

    id: Mapped[str] = mapped_column(Digest(FINGERPRINT), primary_key=True)
    key: Mapped[str] = mapped_column(Digest(FINGERPRINT))
    problem_key: Mapped[str] = mapped_column(Digest(FINGERPRINT), index=True)
    scenario_id: Mapped[str] = mapped_column(ForeignKey("scenarios.id"), index=True)
    calibration_id: Mapped[str] = mapped_column(ForeignKey("calibrations.id"), index=True)
    cost_model_version: Mapped[str]
    search_version: Mapped[str]
    question: Mapped[dict[str, Any]]
    objective: Mapped[str]
    top: Mapped[int] = mapped_column(Whole32)
    max_seconds: Mapped[float]
    seed: Mapped[int]
    created_by: Mapped[str | None]

    state: Mapped[str]
    attempt: Mapped[int] = mapped_column(Whole32, default=0)
    owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    cancel_requested: Mapped[bool] = mapped_column(Boolean, default=False)
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    status: Mapped[str | None]
    best: Mapped[float | None]
    bound: Mapped[float | None]
    gap: Mapped[float | None]
    proven_top_k: Mapped[bool | None] = mapped_column(Boolean)
    plans_within: Mapped[int | None] = mapped_column(Whole32)
    elapsed_s: Mapped[float | None]
    # Everything of the answer that is only shown: eliminated, infeasibility, warnings, counters of the search.
    details: Mapped[dict[str, Any] | None]
    # The problem object of a failed search.
    problem: Mapped[dict[str, Any] | None]

    __table_args__ = (
        CheckConstraint(f"state IN {SEARCH_STATES}", name="state"),
        Index("ix_searches_key_state", "key", "state"),
        Index(
            "uq_searches_alive",
            "key",
            "seed",
            "max_seconds",
            unique=True,
            sqlite_where=text(LIVE),
            postgresql_where=text(LIVE),
        ),
        Index("ix_searches_waiting", "created_at", sqlite_where=text(LIVE), postgresql_where=text(LIVE)),
        Index("ix_searches_created_at_id", "created_at", "id"),
    )


class SearchEventRow(Base):
    """What happened to a search, in order: what ``/events`` tells."""

    __tablename__ = "search_events"

    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(Whole32, primary_key=True)
    kind: Mapped[str]
    data: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class PlanRow(Base):
    """A plan with the figures that lists sort and filter by. Narrow on purpose."""

    __tablename__ = "plans"

    id: Mapped[str] = _fingerprint_key()
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


class SearchPlanRow(Base):
    """Which plans a search answered with, in which order."""

    __tablename__ = "search_plans"

    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(Whole32, primary_key=True)
    plan_id: Mapped[str] = mapped_column(ForeignKey("plans.id"), index=True)


class StudyRow(Base):
    """A series of real runs around the plans of a scenario."""

    __tablename__ = "studies"

    id: Mapped[str] = mapped_column(Digest(FINGERPRINT), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    scenario_id: Mapped[str] = mapped_column(ForeignKey("scenarios.id"), index=True)
    search_id: Mapped[str | None] = mapped_column(ForeignKey("searches.id"))
    created_by: Mapped[str | None]
    created_at: Mapped[datetime]


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


class ApiKeyRow(Base):
    """A key of the API: what it may do, and the digest of its secret. The secret itself is never stored."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(Digest(FINGERPRINT), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    secret_sha256: Mapped[str] = mapped_column(Digest(64), unique=True)
    scopes: Mapped[list[Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class IdempotencyKeyRow(Base):
    """A request that a client may send again: what it was, and the response once there is one."""

    __tablename__ = "idempotency_keys"

    principal: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request: Mapped[str]
    body_sha256: Mapped[str] = mapped_column(Digest(64))
    # Who works on it: a request that took the key over from a dead one must not be finished by that one.
    holder: Mapped[str]
    status_code: Mapped[int | None] = mapped_column(Whole32)
    headers: Mapped[dict[str, Any] | None]
    body: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(index=True)
