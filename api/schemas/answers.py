"""What is answered about searches, plans, predictions and measurements. Units are in the names."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.text import Id

State = Literal["queued", "running", "done", "failed", "cancelled"]
Status = Literal["optimal", "feasible", "infeasible", "unknown"]
Verdict = Literal["fits", "at_risk", "too_big", "not_priced", "illegal"]


class Answer(BaseModel):
    """Any answer."""

    model_config = ConfigDict(extra="forbid")


class ProblemError(Answer):
    """One field that is wrong."""

    pointer: Annotated[str, Field(description="JSON Pointer (RFC 6901) into the body, or a parameter's name.")]
    detail: str


class Problem(Answer):
    """RFC 9457: what went wrong, for programs by ``type``, for people by ``detail``."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(description="A stable slug.", examples=["unknown-name"])]
    title: str
    status: int
    detail: str
    request_id: str | None = None
    errors: list[ProblemError] | None = None


class PlanAxes(Answer):
    """How the step is cut over the devices."""

    tp: int
    pp: int
    vpp: int
    cp: int
    cp_comm_type: str
    ep: int
    etp: int
    dp: int
    dp_replicate: int
    dp_shard: int
    zero_stage: int
    micro_batch_size: int
    num_microbatches: int
    devices_used: int
    schedule: str
    recompute: str
    offload: str


class PlanFields(PlanAxes):
    """A whole plan, flat: what ``plan.json`` holds."""

    sequence_parallel: bool
    global_batch_size: int
    seq_len: int
    layers_per_stage: list[int]
    layers_per_chunk: list[list[int]] | None
    recompute_modules: list[str]
    recomputed_layers_per_stage: list[int]
    precision: str
    optimizer: str
    framework: str
    framework_version: str


class Memory(Answer):
    """Bytes per device."""

    peak_bytes: int
    usable_bytes: int
    stages: Annotated[list[dict[str, int]], Field(description="Bytes by term, for every pipeline stage.")]


class Prediction(Answer):
    """What the cost model says of a plan."""

    step_time_s: float
    step_time_interval_s: Annotated[list[float], Field(min_length=2, max_length=2)]
    tokens_per_s_per_device: float
    mfu: float
    hfu: float
    time: Annotated[dict[str, float], Field(description="Seconds by term; they sum to step_time_s.")]
    memory: Memory
    provenance: Literal["analytic", "calibrated", "measured"]


class RankedPlan(Answer):
    """A plan of an answer, best first."""

    rank: int
    id: Id
    plan: PlanFields
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
    framework: str
    framework_title: str
    framework_version: str
    not_calibrated: Annotated[list[str], Field(description="Decisive parameters that only have a general value here.")]


class Question(Answer):
    """How the scenario was to be searched."""

    min_free_bytes: int | None
    objective: str
    price_per_device_hour: float | None
    pins: list[str]
    forbids: list[str]
    min_used: float
    top: int
    max_seconds: float
    seed: int


class Conflict(Answer):
    """A rule in the way: how many meshes it stops, and one of them with its numbers."""

    rule: str
    meshes: int
    reason: str


class Infeasibility(Answer):
    """Why nothing fits."""

    conflict: list[Conflict]
    relaxations: list[dict[str, Any]]


class SearchFacts(Answer):
    """How the answer was found."""

    elapsed_s: float
    plans_considered: int
    calibration: str
    calibration_id: Id
    cost_model: str
    search_version: str
    meshes: int
    master_solutions: int
    seed: int


class EarlierAnswer(Answer):
    """An answer to the same question under another calibration or by other code."""

    id: Id
    finished_at: datetime
    calibration: str
    calibration_id: Id
    cost_model: str
    search_version: str
    status: Status
    best: float | None


class Search(Answer):
    """A search. ``status`` and all that follows is there once ``state`` is ``done``: the JSON of ``suggest --json``."""

    id: Id
    state: State
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    question: Question
    scenario: ScenarioWords
    problem: Annotated[dict[str, Any] | None, Field(description="Why a failed search failed.")] = None
    status: Status | None = None
    objective: str | None = None
    best: float | None = None
    bound: float | None = None
    gap: float | None = None
    proven_top_k: bool | None = None
    plans_within: int | None = None
    plans: list[RankedPlan] | None = None
    eliminated: dict[str, int] | None = None
    infeasibility: Infeasibility | None = None
    warnings: list[str] | None = None
    search: SearchFacts | None = None
    earlier: list[EarlierAnswer] | None = None


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
    best: float | None
    gap: float | None
    proven_top_k: bool | None
    calibration: str


class SearchList(Answer):
    """A page of searches, newest first."""

    items: list[ListedSearch]
    next: Annotated[str | None, Field(description="The `cursor` of the next page; null at the end.")]


class PlanFigures(Answer):
    """What lists of plans can be sorted by."""

    step_time_s: float
    tokens_per_s_per_device: float
    mfu: float
    peak_bytes: int


class ListedPlan(Answer):
    """A plan in a list."""

    id: Id
    scenario_id: Id
    calibration_id: Id
    cost_model: str
    model: str
    cluster: str
    accelerator: str
    devices: int
    global_batch_size: int
    seq_len: int
    precision: str
    framework: str
    axes: PlanAxes
    figures: PlanFigures
    created_at: datetime


class PlanList(Answer):
    """A page of plans."""

    items: list[ListedPlan]
    next: str | None


class StoredPlan(Answer):
    """A plan with its prediction. It never changes: its id is the fingerprint of all of it."""

    id: Id
    scenario_id: Id
    calibration_id: Id
    cost_model: str
    created_at: datetime
    plan: PlanFields
    prediction: Prediction


class Difference(Answer):
    """A field that differs between the compared plans: its value in each of them, in their order."""

    field: str
    values: list[Any]


class TermDifference(Answer):
    """A term of time (seconds) or memory (bytes on the fullest stage), in each plan, in their order."""

    term: str
    values: list[float]


class Comparison(Answer):
    """Plans side by side."""

    plans: list[StoredPlan]
    same_scenario: bool
    same_calibration: bool
    axes: list[Difference]
    time_s: list[TermDifference]
    memory_bytes: list[TermDifference]
    fastest: Id
    fastest_by: Annotated[
        float, Field(description="How much less time the fastest takes than the next, as a share of the latter.")
    ]
    intervals_overlap: bool


class Violation(Answer):
    """A rule that a plan breaks."""

    rule: str
    reason: str


class PredictionResult(Answer):
    """One item of a batch: a verdict with its prediction, or the problem with the item."""

    status: Verdict | None
    plan_id: Id | None = None
    plan: PlanFields | None = None
    prediction: Prediction | None = None
    violations: list[Violation] = []
    warnings: list[str] = []
    problem: Problem | None = None


class Predictions(Answer):
    """Results in the order of the items."""

    items: list[PredictionResult]


class Measurement(Answer):
    """What really happened, beside what was predicted of that plan."""

    id: Id
    plan_id: Id
    status: Literal["ok", "out_of_memory", "failed"]
    step_time_s: float | None
    tokens_per_s_per_device: float | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    steps: int | None
    job_id: str | None
    environment: dict[str, Any]
    note: str
    log_tail: str
    measured_at: datetime
    created_at: datetime
    predicted_step_time_s: float
    measured_over_predicted: Annotated[
        float | None, Field(description="Measured step time over the predicted one; null without a measured time.")
    ]
    inside_interval: bool | None


class MeasurementList(Answer):
    """A page of measurements, newest first."""

    items: list[Measurement]
    next: str | None


class ListedModel(Answer):
    """A model of the catalog, or one that was asked about."""

    name: str
    params: int
    active_params: int
    num_layers: int
    source: str


class Models(Answer):
    """The models of the catalog, by name."""

    items: list[ListedModel]


class ModelDetails(ListedModel):
    """A model with its shape."""

    id: Id
    spec: dict[str, Any]


class ListedCluster(Answer):
    """A cluster of the catalog."""

    name: str
    accelerator: str
    devices_per_node: int
    max_devices: int | None
    price_per_device_hour: float | None
    source: str


class Clusters(Answer):
    """The clusters of the catalog, by name."""

    items: list[ListedCluster]


class ClusterDetails(ListedCluster):
    """A cluster with its accelerator and tiers."""

    id: Id
    spec: dict[str, Any]


class ListedCalibration(Answer):
    """A calibration: one of the catalog, or one that stored plans were priced under."""

    id: Id
    name: str
    retrieved: str
    source: str
    current: Annotated[bool, Field(description="Whether new questions are answered under it.")]


class Calibrations(Answer):
    """Calibrations, the current one first."""

    items: list[ListedCalibration]


class CalibrationDetails(ListedCalibration):
    """A calibration with its parameters."""

    spec: dict[str, Any]
