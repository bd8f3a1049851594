"""Searches: what is asked, how it stands, what came out, what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from db.records.plans import Plan
from db.records.values import Json

SearchState = Literal["queued", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class Code:
    """Which code a search was asked of: only the same gives the answer that its id stands for."""

    cost_model_version: str
    search_version: str

    def __str__(self) -> str:
        return f"cost model {self.cost_model_version} and search {self.search_version}"


@dataclass(frozen=True, kw_only=True)
class NewSearch:
    """A question to be searched."""

    id: str
    key: str
    problem_key: str
    scenario_id: str
    calibration_id: str
    cost_model_version: str
    search_version: str
    question: Json
    objective: str
    top: int
    max_seconds: float
    seed: int
    created_by: str | None


@dataclass(frozen=True, kw_only=True)
class Search(NewSearch):
    """A search as it stands. Answer fields are None until it is done."""

    calibration: str
    state: SearchState
    attempt: int
    owner: str | None
    lease_until: datetime | None
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    status: str | None
    best: float | None
    bound: float | None
    gap: float | None
    proven_top_k: bool | None
    plans_within: int | None
    elapsed_s: float | None
    details: Json | None
    problem: Json | None
    model: str
    cluster: str
    devices: int
    global_batch_size: int
    seq_len: int


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """What came out of a search.

    Attributes:
        details: everything that is only shown.
        plans: best first.
    """

    status: str
    best: float | None
    bound: float | None
    gap: float | None
    proven_top_k: bool
    plans_within: int
    elapsed_s: float
    details: Json
    plans: Sequence[Plan]


@dataclass(frozen=True, kw_only=True)
class Event:
    search_id: str
    sequence: int
    kind: str
    data: Json
    created_at: datetime
