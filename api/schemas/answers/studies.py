"""Answers about studies: series of real runs."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from api.schemas.answers.base import Answer, Next
from api.schemas.answers.plans import PlanFields
from api.schemas.text import Id

StudyState = Literal["preparing", "open", "done", "stopped", "failed"]
STUDY_OVER: frozenset[StudyState] = frozenset({"done", "stopped", "failed"})
"""States that a study stays in, unless somebody goes on with it."""


class Trial(Answer):
    """A plan that is run, or was: what was predicted, and what was measured."""

    number: int
    """From 0, in the order in which they began."""
    state: Literal["running", "done"]
    outcome: Literal["ok", "stopped", "out_of_memory", "failed"] | None
    """`stopped` early, since it could not win; null while it runs."""
    reason: str
    """Why it was stopped or failed, in words."""
    origin: str
    """Where the plan comes from: the `shortlist`, the rest of the `search`, or a `variant` of one of its plans."""
    plan_id: Id
    plan: PlanFields
    attempt: int
    """How often it was begun: after the death of a worker another one begins the next."""
    worker: str | None
    """Who runs it, host and process; null when it was put back and waits for a worker, and when it is done."""
    gain: float | None
    """Share of the best step time that it was expected to save when it was chosen."""
    chance_to_fit: float | None
    predicted_step_time_s: float
    predicted_step_time_interval_s: tuple[float, float]
    predicted_peak_bytes: int
    measurement_id: Id | None
    step_time_s: float | None
    """Median of the steps after the warm-up."""
    measured_over_predicted: float | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    created_at: datetime
    ended_at: datetime | None


class ListedStudy(Answer):
    """A study in a list."""

    id: Id
    name: str
    scenario_id: Id
    state: StudyState
    """`preparing` until a worker has found its candidates."""
    ended_because: str
    """In words; empty while it goes on."""
    runner: str
    """Which workers run it."""
    most_trials: int
    deadline: datetime | None
    steps: int | None
    warm_up: int | None
    seed: int | None
    created_at: datetime
    ended_at: datetime | None


class Study(ListedStudy):
    """A study with its trials: the JSON of ``planner tune --json``."""

    candidates: int
    """Plans that it may run; 0 until a worker has found them."""
    best: int | None
    """Number of the fastest trial that ran to its end."""
    trials: list[Trial]


class StudyList(Answer):
    """A page of studies, newest first."""

    items: list[ListedStudy]
    next: Next
