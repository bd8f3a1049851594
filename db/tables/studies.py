"""Series of real runs around the plans of a scenario: what may be run, and who runs what."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Digest, Whole32
from db.tables.base import FINGERPRINT, Base

STUDY_STATES = ("preparing", "open", "done", "stopped", "failed")
TRIAL_STATES = ("running", "done")
TRIAL_OUTCOMES = ("ok", "stopped", "out_of_memory", "failed")
TRIAL_RUNS = "state = 'running'"


class StudyRow(Base):
    """A series of real runs around the plans of a scenario.

    While it is prepared, its candidates are looked for, and it has an owner with a lease, as a search has.
    """

    __tablename__ = "studies"

    id: Mapped[str] = mapped_column(Digest(FINGERPRINT), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    scenario_id: Mapped[str] = mapped_column(ForeignKey("scenarios.id"), index=True)
    search_id: Mapped[str | None] = mapped_column(ForeignKey("searches.id"))
    created_by: Mapped[str | None]
    created_at: Mapped[datetime]

    state: Mapped[str] = mapped_column(server_default="done")
    # What was asked: runner, budget, steps, seed, and the question for the search.
    settings: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    runner: Mapped[str] = mapped_column(server_default="")
    most_trials: Mapped[int] = mapped_column(Whole32, server_default="0")
    deadline: Mapped[datetime | None]
    attempt: Mapped[int] = mapped_column(Whole32, server_default="0")
    owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    # Why it ended, in words.
    ended_because: Mapped[str] = mapped_column(server_default="")

    __table_args__ = (
        CheckConstraint(f"state IN {STUDY_STATES}", name="state"),
        Index("ix_studies_created_at_id", "created_at", "id"),
    )


class StudyCandidateRow(Base):
    """The plans that a study may run, in the order in which they should be tried."""

    __tablename__ = "study_candidates"

    study_id: Mapped[str] = mapped_column(ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True)
    place: Mapped[int] = mapped_column(Whole32, primary_key=True)
    plan_id: Mapped[str] = mapped_column(ForeignKey("plans.id"), index=True)
    origin: Mapped[str]


class TrialRow(Base):
    """A candidate that is run, or was. What it measured is the measurement of the same study and number."""

    __tablename__ = "trials"

    study_id: Mapped[str] = mapped_column(ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Whole32, primary_key=True)
    place: Mapped[int] = mapped_column(Whole32)
    state: Mapped[str]
    outcome: Mapped[str | None]
    attempt: Mapped[int] = mapped_column(Whole32)
    owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    # By which its runner finds it again: a process, a job.
    handle: Mapped[str | None]
    # What was expected when it was proposed: gain, chance_to_fit; key and folder of what runs.
    details: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    reason: Mapped[str] = mapped_column(server_default="")

    __table_args__ = (
        CheckConstraint(f"state IN {TRIAL_STATES}", name="state"),
        CheckConstraint(f"outcome IN {TRIAL_OUTCOMES}", name="outcome"),
        UniqueConstraint("study_id", "place"),
        Index("ix_trials_running", "lease_until", sqlite_where=text(TRIAL_RUNS), postgresql_where=text(TRIAL_RUNS)),
    )
