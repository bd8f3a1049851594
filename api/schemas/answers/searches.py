"""Answers about searches."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from api.schemas.answers.base import Absent, Answer, CostModel, Next
from api.schemas.answers.plans import CalibratedOn, CalibratedRange, PlanFields, Prediction
from api.schemas.text import Id

State = Literal["queued", "running", "done", "failed", "cancelled"]
OVER: frozenset[State] = frozenset({"done", "failed", "cancelled"})
"""States that a search stays in."""
Status = Literal["optimal", "feasible", "infeasible", "unknown"]


class RankedPlan(Answer):
    """A plan of an answer, best first."""

    rank: int
    """From 1."""
    id: Id
    """For `GET /v1/plans/{id}`, and for a job to record."""
    plan: PlanFields
    options: list[str] | Absent = None
    """Its unusual options, as pins write them (`offload optimizer`); absent in answers of earlier versions."""
    prediction: Prediction


class ScenarioWords(Answer):
    """What an answer is about."""

    id: Id
    model: str
    params: int
    cluster: str
    accelerator: str
    devices: int
    global_batch_size: int
    seq_len: int
    precision: str
    optimizer: str
    gradient_dtype: str | None = None
    """What gradients are accumulated and reduced in; null in what an earlier version asked."""
    framework: str
    framework_title: str
    framework_version: str
    not_calibrated: list[str]
    """Decisive parameters that only have a general value here."""


class Question(Answer):
    """How the scenario was to be searched."""

    min_free_bytes: int | None
    objective: str
    price_per_device_hour: float | None
    pins: list[str]
    forbids: list[str]
    allow: list[str] | Absent = None
    """What plans might use beside the usual; absent in questions that were stored before anything could be allowed."""
    min_used: float
    top: int
    max_seconds: float
    seed: int
    explain: bool | Absent = None
    """Absent in questions that were stored before there were explanations."""
    min_devices: int | None = None
    """Fewest devices that a plan may use; null to go by `min_used`."""
    max_step_time_s: float | None = None
    batch_tolerance: float | Absent = None
    """The share by which plans may change the global batch. This and what follows: absent in older questions."""
    pareto: bool | Absent = None
    shortlist: float | None = None


class Conflict(Answer):
    """A rule in the way, or something that was asked for: how many meshes it stops, and why in words with numbers."""

    rule: str
    """A rule's name, `memory`, `devices`, or the constraint as it was written: `pin tp=8`, `min-free-gib 20`."""
    meshes: int
    reason: str


class Relaxation(Answer):
    """A change under which a search found a plan."""

    change: str
    flags: list[str]
    """Options of the command line to add or to replace."""
    leave_out: list[str]
    """Options of the command line to leave out."""
    fields: dict[str, Any]
    """The same as fields of `POST /v1/searches`."""
    cost: str
    changes_training: bool
    plan: PlanFields
    options: list[str]
    prediction: Prediction


class Infeasibility(Answer):
    """Why nothing fits."""

    conflict: list[Conflict]
    """The smallest set of rules and constraints that leaves no plan: without any of them some mesh would pass."""
    minimal: bool | Absent = None
    """False where time was short: every rule is listed then. Absent in answers of earlier versions, which list all."""
    relaxations: list[Relaxation]
    """Changes that make it fit, cheapest first, each verified by a search; what changes the training comes last."""


class SearchFacts(Answer):
    """How the answer was found."""

    elapsed_s: float
    plans_considered: int
    """Plans that were priced in full."""
    calibration: str
    calibration_id: Id
    calibrated_range: CalibratedRange | Absent = None
    """Of the question; absent in answers stored before it was told."""
    calibrated_on: CalibratedOn | Absent = None
    """Absent in answers stored before it was told."""
    cost_model: CostModel
    search_version: str
    meshes: int
    """Meshes that the devices allow, the illegal ones too."""
    master_solutions: int
    """Decisions that the solver listed."""
    seed: int


class EarlierAnswer(Answer):
    """An answer to the same question under another calibration or by other code."""

    id: Id
    finished_at: datetime
    calibration: str
    calibration_id: Id
    cost_model: CostModel
    search_version: str
    status: Status
    best: float | None


class ExplainedStep(Answer):
    """A step of the decision procedure, with the numbers of this case."""

    number: int
    """From 1 to 6."""
    slug: str
    """one_replica, shard_state, tensor_parallel, pipeline, context_and_experts or tune."""
    question: str
    verdict: str
    """In a word: yes, no, sharded, added, not_needed, does_not_fit, exposed, tuned, not_reached, ..."""
    told: str
    """In a sentence."""
    numbers: dict[str, bool | int | float | str]
    """Units are in the names."""


class ExplainedPlan(Answer):
    """The plan that the procedure leads to."""

    plan: PlanFields
    prediction: Prediction
    value: float | Absent = None
    """What it comes to in the unit of `objective`. Absent in answers that were stored before it was told, as are the
    other `value`s, `host_bytes_per_node` and `short_of`."""


class AxisDisagreement(Answer):
    """An axis of the plan and its value in both."""

    axis: str
    procedure: Any
    search: Any


class Disagreement(Answer):
    """What the search's best plan has otherwise, and what that changes."""

    axes: list[AxisDisagreement]
    """Axes that are changed together; empty where only the layers of the stages differ."""
    step_time_s: float
    """Seconds more (or, below 0, less) than before the change."""
    time: dict[str, float]
    """The same by term, the largest first; small ones are left out."""
    memory_bytes: int
    """Bytes more on the fullest device."""
    host_bytes_per_node: int | Absent = None
    """Bytes more in the memory of a node."""
    value: float | Absent = None
    """How much more in the unit of `objective`."""
    fits: bool
    """Whether the plan fits with this change and those before it, into the devices and into the hosts."""
    short_of: list[Literal["device", "host"]] | Absent = None
    """The memory that it does not fit into at that point."""
    told: str


class Difference(Answer):
    """The search's best plan less the procedure's."""

    value: float | Absent = None
    """In the unit of `objective`."""
    step_time_s: float
    time: dict[str, float]
    memory_bytes: int
    host_bytes_per_node: int | Absent = None


class RunnerUp(Answer):
    """Why a plan of the answer beats the next."""

    rank: int
    other: int
    step_time_s: float
    """Of the better plan less the other's."""
    share: float
    """Of the other's step that is saved."""
    time: dict[str, float]
    """The parts that decide: seconds of the better plan less those of the other."""
    parts: str
    """The same in words."""
    told: str


class Explanation(Answer):
    """How people choose a plan, walked for this case, and where the search disagrees."""

    objective: str | Absent = None
    """What the search minimises, and both plans are compared by; the steps go for the shortest step all the same."""
    runners_up: list[RunnerUp] | Absent = None
    """Why the first plans beat the next; absent in answers of earlier versions."""
    steps: list[ExplainedStep]
    procedure_plan: ExplainedPlan | None
    """Null where no plan on the procedure's way fits, or the deadline came first."""
    disagreements: list[Disagreement]
    """In the order of the changes from the procedure's plan to the best; empty when they are the same."""
    difference: Difference | None
    """Null without a best plan."""


class FrontPlan(Answer):
    """A plan that no other beats."""

    step_time_s: float
    devices_used: int
    free_bytes: int
    """Usable bytes of the fullest device that it leaves free."""
    cost_per_step: float | None
    id: Id
    plan: PlanFields
    options: list[str]
    prediction: Prediction


class TrialPlan(Answer):
    """A plan to try, and what the list is worth up to it."""

    probability: float
    """That one of the fastest has been tried by then."""
    loss: float
    """Mean share by which the best that was tried by then is slower than the fastest."""
    rank: int
    """By the objective; beyond `top` too."""
    id: Id
    plan: PlanFields
    options: list[str]
    prediction: Prediction


class Shortlist(Answer):
    """Few plans for real trials, in the order in which to try them."""

    asked: float
    probability: float
    indistinct: float
    """Plans that are slower than the fastest by no more than this share are as fast."""
    considered: int
    """Plans among which the fastest is looked for."""
    up_to: float
    """How slow the last of them is predicted to be, over the first."""
    plans: list[TrialPlan]


class Batches(Answer):
    """Which global batches were searched."""

    asked: int
    tolerance: float
    searched: list[int]
    per: Literal["sequence", "step"]
    """What `best` and `bound` are per."""


class Search(Answer):
    """A search. ``status`` and all that follows is there once ``state`` is ``done``: the JSON of ``suggest --json``."""

    id: Id
    state: State
    created_at: datetime
    started_at: datetime | None
    """When it last began to run."""
    finished_at: datetime | None
    question: Question
    scenario: ScenarioWords
    problem: dict[str, Any] | Absent = None
    """Why a `failed` search failed: `type`, `title`, `detail`."""
    status: Status | Absent = None
    """`optimal` and `infeasible` are proven; `max_seconds` cut `feasible` and `unknown`, with and without a plan."""
    objective: str | Absent = None
    best: float | None = None
    """The best plan's value in the objective's unit: seconds, price of a step, or devices. Null without a plan."""
    bound: float | None = None
    """What no plan can be better than, in the same unit."""
    gap: float | None = None
    """`(best - bound) / best`: how far from the best the first plan can be; 0 when it is proven."""
    proven_top_k: bool | Absent = None
    """Whether all of `plans` are proven to be the best, in this order."""
    plans_within: int | Absent = None
    """Different plans, among those priced, that the prediction's interval can't tell from the best."""
    plans: list[RankedPlan] | Absent = None
    """Best first; empty when nothing fits."""
    eliminated: dict[str, int] | Absent = None
    """How many meshes each rule stopped."""
    infeasibility: Infeasibility | None = None
    """Why nothing fits; null unless `status` is `infeasible`."""
    warnings: list[str] | Absent = None
    search: SearchFacts | Absent = None
    explanation: Explanation | Absent = None
    """Where the question had `explain`."""
    price_per_device_hour: float | None = None
    """The price asked with, or the cluster's."""
    cost_per_1e9_tokens: float | None = None
    """What 1e9 tokens cost with the best plan, on the devices that it uses; null without a price."""
    pareto: list[FrontPlan] | Absent = None
    """Where the question had `pareto`: the plans that no other beats in step time, devices and free memory at once,
    free memory in tenths of what is usable; the fastest first."""
    pareto_proven: bool | Absent = None
    """Whether `max_seconds` left time to look for all of them."""
    shortlist: Shortlist | None = None
    """Where the question had `shortlist`."""
    batches: Batches | Absent = None
    """Where the question had a `batch_tolerance`."""
    earlier: list[EarlierAnswer] | Absent = None
    """What was answered before under another calibration or by other code, newest first."""


class ListedSearch(Answer):
    """A search in a list."""

    id: Id
    state: State
    created_at: datetime
    finished_at: datetime | None
    model: str
    cluster: str
    devices: int
    global_batch_size: int
    seq_len: int
    objective: str
    status: Status | None
    """Null until it is done."""
    best: float | None
    per: Literal["sequence", "step"]
    """What `best` is per: a sequence where the question had a `batch_tolerance` and minimises time or cost."""
    gap: float | None
    proven_top_k: bool | None
    calibration: str


class SearchList(Answer):
    """A page of searches, newest first."""

    items: list[ListedSearch]
    next: Next
