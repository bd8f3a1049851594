"""What goes into the repositories and comes out of them: plain frozen values, no sessions behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Json = dict[str, Any]
SearchState = Literal["queued", "running", "done", "failed", "cancelled"]
MeasuredStatus = Literal["ok", "out_of_memory", "failed"]
PLAN_SORTS = ("step_time_s", "tokens_per_s_per_device", "mfu", "peak_bytes", "created_at")
"""What a list of plans may be sorted by; ``-`` in front turns it round."""


@dataclass(frozen=True, kw_only=True)
class Model:
    id: str
    name: str
    params_total: int
    params_active: int
    num_layers: int
    source: str
    spec: Json


@dataclass(frozen=True, kw_only=True)
class Cluster:
    id: str
    name: str
    accelerator: str
    devices_per_node: int
    max_devices: int | None
    price_per_device_hour: float | None
    source: str
    spec: Json


@dataclass(frozen=True, kw_only=True)
class Calibration:
    id: str
    name: str
    retrieved: str
    source: str
    spec: Json


@dataclass(frozen=True, kw_only=True)
class Scenario:
    id: str
    model: Model
    cluster: Cluster
    devices: int
    global_batch_size: int
    seq_len: int
    precision: str
    optimizer: str
    framework: str
    framework_version: str
    min_free_bytes: int | None
    spec: Json


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan with what the cost model says of it.

    Attributes:
        plan: flat, as ``plan.json`` holds it.
        prediction: as ``suggest --json`` prints it.
    """

    id: str
    scenario_id: str
    calibration_id: str
    cost_model_version: str
    plan: Json
    prediction: Json
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class ListedPlan:
    """A plan as lists show it.

    Attributes:
        axes: the mesh, micro-batch, schedule and policies by their names; no layers.
        figures: ``step_time_s``, ``tokens_per_s_per_device``, ``mfu``, ``peak_bytes``.
    """

    id: str
    scenario_id: str
    calibration_id: str
    cost_model_version: str
    model: str
    cluster: str
    accelerator: str
    devices: int
    global_batch_size: int
    seq_len: int
    precision: str
    framework: str
    axes: Json
    figures: Json
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class PlanFilter:
    """What plans to list; None does not filter. ``axes`` are equalities on columns of ``plans``, ``tp`` say."""

    scenario_id: str | None = None
    search_id: str | None = None
    calibration_id: str | None = None
    model: str | None = None
    cluster: str | None = None
    accelerator: str | None = None
    framework: str | None = None
    precision: str | None = None
    devices: int | None = None
    max_peak_bytes: int | None = None
    axes: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Page:
    """A part of a list and the place where the next one begins; None at the end.

    Attributes:
        next: to be handed back as ``after``: values of the sort column and the id of the last item.
    """

    items: Sequence[Any]
    next: tuple[Any, str] | None


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
class Search:
    """A search as it stands. Answer fields are None until it is done.

    Attributes:
        scenario: None in lists only, where ``scenario_id`` and the names suffice.
    """

    id: str
    key: str
    problem_key: str
    scenario_id: str
    calibration_id: str
    calibration: str
    cost_model_version: str
    search_version: str
    question: Json
    objective: str
    top: int
    max_seconds: float
    seed: int
    created_by: str | None
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


@dataclass(frozen=True, kw_only=True)
class Study:
    id: str
    name: str
    scenario_id: str
    search_id: str | None
    created_by: str | None
    created_at: datetime


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


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    id: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    def is_valid(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True, kw_only=True)
class StoredResponse:
    """The response that an idempotency key stands for."""

    status_code: int
    headers: Json
    body: str


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """The outcome of asking for an idempotency key.

    Attributes:
        outcome: ``started``: this request has to be carried out; ``answered``: ``response`` is the answer;
            ``other_body``: the key stands for another request; ``in_progress``: somebody works on it.
    """

    outcome: Literal["started", "answered", "other_body", "in_progress"]
    response: StoredResponse | None = None
