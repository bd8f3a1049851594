"""Answers about plans: one, many, side by side, and those that a client has itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from api.schemas.answers.base import Absent, Answer, CostModel, Next, Problem
from api.schemas.text import Id

Verdict = Literal["fits", "at_risk", "too_big", "unknown", "illegal"]


class PlanAxes(Answer):
    """How the step is cut over the devices."""

    tp: int
    """Tensor-parallel degree."""
    pp: int
    """Pipeline stages."""
    vpp: int
    """Model chunks per pipeline stage (virtual stages); 1 is none."""
    cp: int
    """Context-parallel degree: parts that a sequence is cut into."""
    cp_comm_type: str
    """How context-parallel ranks exchange keys and values: p2p, all_gather, a2a, ..."""
    ep: int
    """Expert-parallel degree; on a mesh of its own, so it is no factor of the others."""
    etp: int
    """Tensor-parallel degree inside experts."""
    dp: int
    """Data-parallel degree: dp_replicate * dp_shard."""
    dp_replicate: int
    """Copies of the sharded state."""
    dp_shard: int
    """Devices that one copy of the state is sharded over."""
    zero_stage: int
    """What is sharded: 0 nothing, 1 optimizer state, 2 also gradients, 3 also parameters."""
    micro_batch_size: int
    """Sequences per micro-batch and data-parallel rank."""
    num_microbatches: int
    """Micro-batches per step and data-parallel rank."""
    devices_used: int
    """Devices in the mesh; the others idle."""
    schedule: str
    """Pipeline schedule: 1f1b, interleaved_1f1b, ..."""
    recompute: str
    """Activations that are computed again in the backward pass: none, selective or full."""
    offload: str
    """What is kept in host memory."""


class PlanFields(PlanAxes):
    """A whole plan, flat: what ``plan.json`` holds."""

    sequence_parallel: bool
    global_batch_size: int
    """Sequences per step, over all devices."""
    seq_len: int
    """Tokens per sequence."""
    layers_per_stage: list[int]
    """Decoder layers of every pipeline stage, in order; they sum to the model's."""
    layers_per_chunk: list[list[int]] | None
    """The same for every chunk of every stage; null when vpp is 1."""
    recompute_modules: list[str]
    """What selective recompute computes again."""
    recomputed_layers_per_stage: list[int]
    """Layers that full recompute computes again, for every stage."""
    precision: str
    optimizer: str
    gradient_dtype: str = "fp32"
    """What gradients are accumulated and reduced in."""
    framework: str
    framework_version: str
    recompute_interval: int = 1
    """Under full recompute: layers that share one checkpoint."""
    reshard_after: str = "forward"
    """When gathered parameters are dropped: forward, backward or step."""
    fsdp_prefetch: int = 1
    """Layers that are gathered ahead."""
    gradient_sync: str = "step"
    """When gradients are reduced: step or microbatch."""
    zero_plus: list[str] = Field(default=[])
    """Parts of ZeRO++ in use: qwz, hpz, qgz."""
    tp_overlap: bool = True
    """Whether tensor-parallel exchanges overlap with products."""
    cp_a2a_degree: int = 1
    """Ranks of context parallelism that exchange heads."""
    cp_balanced: bool = True
    """Whether every context-parallel rank holds an early and a late piece."""
    moe_dispatcher: str = "deduplicated"
    """How tokens reach their experts."""
    ep_overlap: bool = False
    """Whether dispatch and combine overlap with compute."""
    moe_capacity_factor: float | None = None
    """Most tokens of an expert over the mean; null drops none."""


class CalibratedRange(Answer):
    """Whether something lies inside of what the runs were like that the calibration was fitted to."""

    inside: bool | None
    """Null where the calibration doesn't say what its runs were like."""
    beyond: list[str]
    """In what it lies outside, and what runs had; intervals are wider then."""


class CalibrationRows(Answer):
    """Parameters whose rows in the calibration are about the same; null is any."""

    parameters: list[str]
    accelerator: str | None
    family: str | None
    precision: str | None
    """The one of the rows, which may be another than the question's."""
    framework: str | None


class CalibratedOn(Answer):
    """What the parameters that decide rest on."""

    text: str
    own_runs: bool | None
    """Whether the calibration was fitted to runs on this accelerator; null where it doesn't say."""
    rows: list[CalibrationRows]


class Memory(Answer):
    """Bytes per device."""

    peak_bytes: int
    """On the fullest stage."""
    peak_interval_bytes: Annotated[list[int], Field(min_length=2, max_length=2)] | Absent = None
    """Low and high end of where that is expected. Absent in answers that were stored before it was told, as `verdict`
    and `device_bytes` are."""
    usable_bytes: int
    """What a plan may take: the device's memory without what is kept free."""
    verdict: Literal["fits", "at_risk", "too_big"] | Absent = None
    """`at_risk` fits, but the upper end of the interval does not: it may run out of memory."""
    reserved_bytes: int | Absent = None
    """What the process then holds of the device: the allocator's pool, and what lies outside of it. Absent in answers
    that were stored before it was told, as the next two are."""
    device_bytes: int | Absent = None
    """What the device has in all."""
    host_bytes_per_node: int | Absent = None
    """Of offloaded tensors in the memory of one node, all its devices together."""
    host_memory_bytes_per_node: int | None = None
    """What a node has; null where that is not known."""
    stages: list[dict[str, int]]
    """Bytes by term, for every pipeline stage."""


class Utilisation(Answer):
    """How well the devices that are used are used, and by which definition."""

    mfu: float
    hfu: float
    attention: Literal["causal"]
    """How the model FLOPs count attention: the half of the scores that a causal mask leaves."""
    peak: str
    """The number format whose dense peak `mfu` and `hfu` are held against: that of the large matrix products."""
    peak_flops_per_s: float
    """That peak, of one device."""
    parameters: int
    """N of 6 N: what one token multiplies with, the active experts and the head but no input embedding."""
    model_flops_per_token: float
    hardware_flops_per_token: float
    """Model FLOPs and those that recomputation runs again."""
    model_flops_per_step: float
    model_flops_per_s_per_device: float
    """What is quoted as TFLOP/s per GPU, in FLOP/s."""
    tokens_per_s: float
    """Of the whole job."""
    mfu_parameters_only: float
    """Counted as 6 N, without attention."""
    mfu_full_attention: float
    """Counted with the whole score matrix, as PaLM and Megatron do."""
    mfu_bf16_peak: float | None
    """As `mfu`, against the bf16 peak; null on a device without bf16."""


class Prediction(Answer):
    """What the cost model says of a plan."""

    step_time_s: float
    """Seconds per optimizer step."""
    step_time_interval_s: Annotated[list[float], Field(min_length=2, max_length=2)]
    """Low and high end of where the step time is expected."""
    tokens_per_s_per_device: float
    """Over the devices that are used."""
    mfu: float
    """Model FLOPs utilization, a share of 1."""
    hfu: float
    """The same with what is recomputed counted as well."""
    utilisation: Utilisation | Absent = None
    """What `mfu` and `hfu` count, and other conventions beside them; absent in answers stored before it was told."""
    calibrated_range: CalibratedRange | Absent = None
    """Of this plan; absent in answers stored before it was told."""
    time: dict[str, float]
    """Seconds by term; they sum to step_time_s."""
    memory: Memory
    provenance: Literal["analytic", "calibrated", "measured"]
    """What the times rest on, from general formulas to runs of this very kind."""


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
    cost_model: CostModel
    model: str
    cluster: str
    accelerator: str
    devices: int
    """Devices that there are; `axes.devices_used` says how many the plan uses."""
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
    next: Next


class StoredPlan(Answer):
    """A plan with its prediction. It never changes: its id is the fingerprint of all of it."""

    id: Id
    scenario_id: Id
    """Fingerprint of what was given: model, cluster, devices, batch, precision, framework."""
    calibration_id: Id
    cost_model: CostModel
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
    """In the order in which they were asked for."""
    same_scenario: bool
    """Whether they answer the same question; otherwise their times are of different work."""
    same_work: bool
    """Whether their steps do the same: one question, and one batch where its batch had a tolerance. Only then can the
    times of their steps be held against each other."""
    same_calibration: bool
    """Whether they were predicted by the same code and calibration."""
    axes: list[Difference]
    time_s: list[TermDifference]
    """Every term of time, the largest difference first."""
    memory_bytes: list[TermDifference]
    """Every term of memory on the fullest stage, the largest difference first."""
    fastest: Id
    fastest_by: float
    """How much less time the fastest takes than the next, as a share of the latter."""
    intervals_overlap: bool
    """Whether the predicted intervals of these two overlap: then a run may well turn out the other way round."""


class Violation(Answer):
    """A rule that a plan breaks."""

    rule: str
    """Its name: a slug that stays the same."""
    reason: str
    """The rule with the plan's numbers."""


class PredictionResult(Answer):
    """One item of a batch: a verdict with its prediction, or the problem with the item."""

    status: Verdict | None
    """`at_risk` fits so closely that it may run out of memory; `unknown` has no price, and bounds on its memory lie on
    both sides of what there is; null when the item has a `problem`."""
    plan_id: Id | Absent = None
    """Where the plan is stored; absent when it is illegal or has no price."""
    plan: PlanFields | Absent = None
    """The plan with everything that follows from what was given."""
    prediction: Prediction | Absent = None
    short_of: list[Literal["device", "host"]] | Absent = None
    """Of a plan that is `too_big`: the memory that it does not fit into, the devices', the hosts' or both. Empty
    for any other."""
    violations: list[Violation] | Absent = None
    """The rules that it breaks."""
    warnings: list[str] | Absent = None
    problem: Problem | Absent = None
    """What is wrong with the item; its pointers are into the whole body."""


class Predictions(Answer):
    """Results in the order of the items."""

    items: list[PredictionResult]
