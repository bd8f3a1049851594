"""Searches, what happened to them, and which plans they answered with."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Digest, Whole32
from db.tables.base import FINGERPRINT, Base

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


class SearchPlanRow(Base):
    """Which plans a search answered with, in which order."""

    __tablename__ = "search_plans"

    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(Whole32, primary_key=True)
    plan_id: Mapped[str] = mapped_column(ForeignKey("plans.id"), index=True)
