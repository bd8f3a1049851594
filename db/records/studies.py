"""Series of real runs around the plans of a scenario."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from db.records.values import Json

StudyState = Literal["preparing", "open", "done", "stopped", "failed"]
TrialOutcome = Literal["ok", "stopped", "out_of_memory", "failed"]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study.

    Attributes:
        settings: what was asked beside the columns: the question for the search, steps, warm-up, seed.
        most_trials: trials that may be made at most.
        deadline: after which nothing new is started.
        ended_because: in words; empty while it goes on.
    """

    id: str
    name: str
    scenario_id: str
    search_id: str | None
    created_by: str | None
    created_at: datetime
    state: StudyState = "done"
    settings: Json = field(default_factory=dict)
    runner: str = ""
    most_trials: int = 0
    deadline: datetime | None = None
    attempt: int = 0
    owner: str | None = None
    lease_until: datetime | None = None
    ended_at: datetime | None = None
    ended_because: str = ""


@dataclass(frozen=True, kw_only=True)
class StudyCandidate:
    """A plan that a study may run; candidates are tried from place 0 on unless measurements say otherwise."""

    study_id: str
    place: int
    plan_id: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A candidate that is run, or was.

    Attributes:
        number: in its study, from 0.
        place: of the candidate; no other trial of the study has it.
        attempt: how often it was begun, from 1: whoever takes it over from a dead owner begins the next.
        handle: by which its runner finds it again; None before it is started.
        details: what was expected when it was proposed, and where what runs has its files.
    """

    study_id: str
    number: int
    place: int
    state: Literal["running", "done"]
    outcome: TrialOutcome | None
    attempt: int
    owner: str | None
    lease_until: datetime | None
    handle: str | None
    details: Json
    created_at: datetime
    ended_at: datetime | None
    reason: str
