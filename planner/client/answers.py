"""What the server says, typed and frozen. Units are in the names.

A field that this client does not know is kept as it came, so a newer server breaks nothing and its answer is passed on
whole. Words that may grow (states, statuses) are plain text for the same reason.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

OVER = frozenset({"done", "failed", "cancelled"})


class Told(BaseModel):
    """Anything that the server says."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def document(self) -> dict[str, Any]:
        """The JSON object that was received."""
        return self.model_dump(mode="json", exclude_unset=True)


class PlanAxes(Told):
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
    """A whole plan: its ``document()`` is what ``planner check --plan`` reads."""

    sequence_parallel: bool
    global_batch_size: int
    seq_len: int
    layers_per_stage: tuple[int, ...]
    layers_per_chunk: tuple[tuple[int, ...], ...] | None
    recompute_modules: tuple[str, ...]
    recomputed_layers_per_stage: tuple[int, ...]
    precision: str
    optimizer: str
    gradient_dtype: str = "fp32"
    framework: str
    framework_version: str
    recompute_interval: int = 1
    reshard_after: str = "forward"
    fsdp_prefetch: int = 1
    gradient_sync: str = "step"
    zero_plus: tuple[str, ...] = ()
    tp_overlap: bool = True
    cp_a2a_degree: int = 1
    cp_balanced: bool = True
    moe_dispatcher: str = "deduplicated"
    ep_overlap: bool = False
    moe_capacity_factor: float | None = None


class CalibratedRange(Told):
    """Whether something lies inside of what the calibration's runs were like; ``inside`` is None where nobody knows."""

    inside: bool | None
    beyond: tuple[str, ...]


class CalibrationRows(Told):
    """Parameters whose rows are about the same; None is any accelerator, family, precision or framework."""

    parameters: tuple[str, ...]
    accelerator: str | None
    family: str | None
    precision: str | None
    framework: str | None


class CalibratedOn(Told):
    """What the deciding parameters rest on; ``own_runs`` is None where the calibration names no devices of its runs."""

    text: str
    own_runs: bool | None
    rows: tuple[CalibrationRows, ...]


class Memory(Told):
    """Bytes per device; ``stages`` has them by term, for every pipeline stage.

    ``verdict`` is ``fits``, ``at_risk`` or ``too_big``. What is None was not told by a server of an earlier version.
    """

    peak_bytes: int
    peak_interval_bytes: tuple[int, int] | None = None
    usable_bytes: int
    verdict: str | None = None
    reserved_bytes: int | None = None
    device_bytes: int | None = None
    host_bytes_per_node: int = 0
    host_memory_bytes_per_node: int | None = None
    stages: tuple[dict[str, int], ...]


class Utilisation(Told):
    """MFU and HFU with the definition that they are counted by, and other conventions beside them."""

    mfu: float
    hfu: float
    attention: str
    peak: str
    peak_flops_per_s: float
    parameters: int
    model_flops_per_token: float
    hardware_flops_per_token: float
    model_flops_per_step: float
    model_flops_per_s_per_device: float
    tokens_per_s: float
    mfu_parameters_only: float
    mfu_full_attention: float
    mfu_bf16_peak: float | None


class Prediction(Told):
    """What the cost model says of a plan; ``time`` has seconds by term, which sum to ``step_time_s``."""

    step_time_s: float
    step_time_interval_s: tuple[float, float]
    tokens_per_s_per_device: float
    mfu: float
    hfu: float
    utilisation: Utilisation | None = None
    calibrated_range: CalibratedRange | None = None
    time: dict[str, float]
    memory: Memory
    provenance: str


class RankedPlan(Told):
    """A plan of an answer; rank 1 is the best.

    ``options`` are its unusual ones in words; None from a server that does not tell them.
    """

    rank: int
    id: str
    plan: PlanFields
    options: tuple[str, ...] | None = None
    prediction: Prediction


class ScenarioWords(Told):
    """What an answer is about."""

    id: str
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
    framework: str
    framework_title: str
    framework_version: str
    not_calibrated: tuple[str, ...]


class AskedQuestion(Told):
    """How the scenario was to be searched."""

    min_free_bytes: int | None
    objective: str
    price_per_device_hour: float | None
    pins: tuple[str, ...]
    forbids: tuple[str, ...]
    allow: tuple[str, ...] = ()
    min_used: float
    top: int
    max_seconds: float
    seed: int
    explain: bool = False
    min_devices: int | None = None
    max_step_time_s: float | None = None
    batch_tolerance: float = 0.0
    pareto: bool = False
    shortlist: float | None = None


class Conflict(Told):
    """A rule in the way, or something that was asked for: how many meshes it stops, and why in words with numbers."""

    rule: str
    meshes: int
    reason: str


class Relaxation(Told):
    """A change under which a search found a plan."""

    change: str
    flags: tuple[str, ...]
    leave_out: tuple[str, ...]
    fields: dict[str, Any]
    cost: str
    changes_training: bool
    plan: PlanFields
    options: tuple[str, ...]
    prediction: Prediction


class Infeasibility(Told):
    """Why nothing fits."""

    conflict: tuple[Conflict, ...]
    minimal: bool = False
    relaxations: tuple[Relaxation, ...]


class SearchFacts(Told):
    """How the answer was found; ``calibrated_range`` is about the question, and each prediction's about its plan."""

    elapsed_s: float
    plans_considered: int
    calibration: str
    calibration_id: str
    calibrated_range: CalibratedRange | None = None
    calibrated_on: CalibratedOn | None = None
    cost_model: str
    search_version: str
    meshes: int
    master_solutions: int
    seed: int


class EarlierAnswer(Told):
    """An answer to the same question under another calibration or by other code."""

    id: str
    finished_at: datetime
    calibration: str
    calibration_id: str
    cost_model: str
    search_version: str
    status: str
    best: float | None


class Search(Told):
    """A search as it stands: queued, running, done (and then an Answer), failed or cancelled."""

    id: str
    state: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    question: AskedQuestion
    scenario: ScenarioWords
    problem: dict[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it never changes again."""
        return self.state in OVER


class ExplainedStep(Told):
    """A step of the procedure: ``told`` is its ``verdict`` in a sentence; numbers have units in their names."""

    number: int
    slug: str
    question: str
    verdict: str
    told: str
    numbers: dict[str, Any]


class ExplainedPlan(Told):
    """The plan that the procedure leads to; ``value`` is in the objective's unit."""

    plan: PlanFields
    prediction: Prediction
    value: float | None = None


class Disagreement(Told):
    """Axes in which the search's best plan differs from the procedure's, and what that changes."""

    axes: tuple[dict[str, Any], ...]
    step_time_s: float
    time: dict[str, float]
    memory_bytes: int
    host_bytes_per_node: int = 0
    value: float | None = None
    fits: bool
    short_of: tuple[str, ...] = ()
    told: str


class RunnerUp(Told):
    """Why a plan of the answer beats the next, and by how much of the other's step."""

    rank: int
    other: int
    step_time_s: float
    share: float
    time: dict[str, float]
    parts: str
    told: str


class Explanation(Told):
    """The procedure's steps and plan, and where the search's best plan disagrees by what is minimised."""

    objective: str = "step_time"
    runners_up: tuple[RunnerUp, ...] = ()
    steps: tuple[ExplainedStep, ...]
    procedure_plan: ExplainedPlan | None
    disagreements: tuple[Disagreement, ...]
    difference: dict[str, Any] | None


class FrontPlan(Told):
    """A plan that no other beats in step time, devices and free memory at once."""

    step_time_s: float
    devices_used: int
    free_bytes: int
    cost_per_step: float | None
    id: str
    plan: PlanFields
    options: tuple[str, ...] = ()
    prediction: Prediction


class TrialPlan(Told):
    """A plan to try.

    Attributes:
        probability: that one of the fastest has been tried by then.
        loss: mean share by which the best that was tried by then is slower than the fastest.
    """

    probability: float
    loss: float
    rank: int
    id: str
    plan: PlanFields
    options: tuple[str, ...] = ()
    prediction: Prediction


class Shortlist(Told):
    """Few plans for real trials, in the order in which to try them; see the API's documentation."""

    asked: float
    probability: float
    indistinct: float
    considered: int
    up_to: float
    plans: tuple[TrialPlan, ...]


class Answer(Search):
    """Ranked plans, or why there are none. ``best`` and ``bound`` are in the objective's unit.

    ``status`` is ``optimal`` (the best plan is proven), ``feasible`` (cut by the deadline, off by ``gap`` at most),
    ``infeasible`` (nothing fits: see ``infeasibility``) or ``unknown`` (no plan was found in time).
    """

    status: str
    objective: str
    best: float | None
    bound: float | None
    gap: float | None
    proven_top_k: bool
    plans_within: int
    plans: tuple[RankedPlan, ...]
    eliminated: dict[str, int]
    infeasibility: Infeasibility | None
    warnings: tuple[str, ...]
    search: SearchFacts
    explanation: Explanation | None = None
    price_per_device_hour: float | None = None
    cost_per_1e9_tokens: float | None = None
    pareto: tuple[FrontPlan, ...] = ()
    pareto_proven: bool = True
    shortlist: Shortlist | None = None
    batches: dict[str, Any] | None = None
    earlier: tuple[EarlierAnswer, ...] = ()


def search_of(document: dict[str, Any]) -> Search:
    """The search that the server's JSON describes, an Answer when it is done."""
    return (Answer if document.get("state") == "done" else Search).model_validate(document)


class ListedSearch(Told):
    """A search in a list."""

    id: str
    state: str
    created_at: datetime
    finished_at: datetime | None
    model: str
    cluster: str
    devices: int
    global_batch_size: int
    seq_len: int
    objective: str
    status: str | None
    best: float | None
    # What it is per, a sequence where the batch could be another; older servers do not say it.
    per: str = "step"
    gap: float | None
    proven_top_k: bool | None
    calibration: str


class SearchEvent(Told):
    """Something that happened to a search; ``sequence`` grows, and is where to go on from."""

    sequence: int
    kind: str
    data: dict[str, Any]


class PlanFigures(Told):
    """What lists of plans can be sorted by."""

    step_time_s: float
    tokens_per_s_per_device: float
    mfu: float
    peak_bytes: int


class ListedPlan(Told):
    """A plan in a list."""

    id: str
    scenario_id: str
    calibration_id: str
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


class StoredPlan(Told):
    """A plan with its prediction. It never changes: its id is the fingerprint of all of it."""

    id: str
    scenario_id: str
    calibration_id: str
    cost_model: str
    created_at: datetime
    plan: PlanFields
    prediction: Prediction


class Difference(Told):
    """A field that differs between the compared plans: its value in each of them, in their order."""

    field: str
    values: tuple[Any, ...]


class TermDifference(Told):
    """A term of time (seconds) or memory (bytes on the fullest stage), in each plan, in their order."""

    term: str
    values: tuple[float, ...]


class Comparison(Told):
    """Plans side by side; ``fastest_by`` is the share of the next one's time that the fastest saves."""

    plans: tuple[StoredPlan, ...]
    same_scenario: bool
    same_work: bool | None = None
    same_calibration: bool
    axes: tuple[Difference, ...]
    time_s: tuple[TermDifference, ...]
    memory_bytes: tuple[TermDifference, ...]
    fastest: str
    fastest_by: float
    intervals_overlap: bool


class Violation(Told):
    """A rule that a plan breaks."""

    rule: str
    reason: str


class PredictionResult(Told):
    """A verdict on one plan: ``fits``, ``at_risk``, ``too_big``, ``unknown`` or ``illegal``.

    ``short_of`` says of one that is too big which memory is: ``device``, ``host`` or both. An item that could not be
    judged has no status but a ``problem``.
    """

    status: str | None
    plan_id: str | None = None
    plan: PlanFields | None = None
    prediction: Prediction | None = None
    short_of: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: dict[str, Any] | None = None


class ListedMeasurement(Told):
    """What really happened, beside what was predicted of that plan; without what may be long."""

    id: str
    plan_id: str
    status: str
    step_time_s: float | None
    tokens_per_s_per_device: float | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    steps: int | None
    job_id: str | None
    note: str
    measured_at: datetime
    created_at: datetime
    predicted_step_time_s: float
    measured_over_predicted: float | None
    inside_interval: bool | None


class Measurement(ListedMeasurement):
    """A measurement with its environment and the end of its log."""

    environment: dict[str, Any]
    log_tail: str


class Health(Told):
    """Whether the server can answer questions, and if not, why."""

    ready: bool
    database: str | None = None
    revision: str | None = None
    reason: str | None = None


class LaunchedFile(Told):
    """A file of a launch."""

    name: str
    text: str
    executable: bool


class LaunchFiles(Told):
    """A plan in the words of a target: its files, how to start it, and what is left to say."""

    target: str
    version: str | None
    files: tuple[LaunchedFile, ...]
    command: str
    notes: tuple[str, ...]
