"""What the client sends. What is None is not sent: the server's default holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ScenarioQuestion:
    """What model runs on what.

    Attributes:
        model: a name of the server's catalog, or an object: the content of a Hugging Face config.json, say.
        cluster: a name of the server's catalog, or the fields of a cluster file.
        gradient_dtype: ``fp32`` or ``bf16``: what gradients are accumulated and reduced in.
        calibration: a name of the server's catalog.
        min_free_gib: memory to keep free on every device.
    """

    model: str | Mapping[str, Any]
    cluster: str | Mapping[str, Any]
    precision: str | None = None
    optimizer: str | None = None
    gradient_dtype: str | None = None
    framework: str | None = None
    framework_version: str | None = None
    calibration: str | None = None
    min_free_gib: float | None = None


@dataclass(frozen=True, kw_only=True)
class SearchQuestion(ScenarioQuestion):
    """What ``planner suggest`` is asked, by the names of its flags.

    Attributes:
        devices: how many accelerators are at hand.
        global_batch_size: sequences per optimizer step.
        seq_len: tokens per sequence.
        objective: ``step_time``, ``cost`` or ``fewest_devices``.
        pins: conditions such as ``tp=8`` or ``pp=4,8,16``.
        forbids: values to rule out, such as ``recompute=full``.
        allow: what plans may use beside the usual: ``offload``.
        min_used: share of the devices that a plan must use.
        top: how many different plans.
        max_seconds: deadline of the search; the best plans found by then are the answer.
        explain: whether the answer is to hold the decision procedure and where its plan differs from the best.
        min_devices: fewest devices that a plan may use, in place of ``min_used``.
        max_step_time_s: seconds that a step may take at most.
        batch_tolerance: share by which plans may change the global batch.
        pareto: whether the plans that no other beats in time, devices and free memory are wanted too.
        shortlist: the probability with which the fastest plan is to be in a short list for trials.
    """

    devices: int
    global_batch_size: int
    seq_len: int
    objective: str | None = None
    price_per_device_hour: float | None = None
    pins: Sequence[str] | None = None
    forbids: Sequence[str] | None = None
    allow: Sequence[str] | None = None
    min_used: float | None = None
    top: int | None = None
    max_seconds: float | None = None
    seed: int | None = None
    explain: bool | None = None
    min_devices: int | None = None
    max_step_time_s: float | None = None
    batch_tolerance: float | None = None
    pareto: bool | None = None
    shortlist: float | None = None


@dataclass(frozen=True, kw_only=True)
class StudyQuestion(ScenarioQuestion):
    """What is to be tried on real machines, by the names of the flags of ``planner tune``.

    Attributes:
        name: one that no other study has.
        devices, global_batch_size, seq_len, pins, forbids, allow, min_used, max_seconds, seed: as in SearchQuestion.
        runner: which workers run it: ``local``, ``command`` or ``slurm``; how, their own launch file says.
        trials: how many may be run at most.
        max_minutes: after which the study ends, from now on.
        steps, warm_up: of a trial.
        layers: of the model that is planned and run; all by default.
    """

    name: str
    devices: int
    global_batch_size: int
    seq_len: int
    pins: Sequence[str] | None = None
    forbids: Sequence[str] | None = None
    allow: Sequence[str] | None = None
    min_used: float | None = None
    max_seconds: float | None = None
    seed: int | None = None
    runner: str | None = None
    trials: int | None = None
    max_minutes: float | None = None
    steps: int | None = None
    warm_up: int | None = None
    layers: int | None = None


@dataclass(frozen=True, kw_only=True)
class PlanQuestion(ScenarioQuestion):
    """A plan that somebody has already, to be judged and priced.

    Attributes:
        plan: the fields of a plan, as ``plan.json`` has them; what follows from others may be left out.
        devices, global_batch_size, seq_len: where the plan does not say them.
    """

    plan: Mapping[str, Any]
    devices: int | None = None
    global_batch_size: int | None = None
    seq_len: int | None = None


@dataclass(frozen=True, kw_only=True)
class PlanFilter:
    """Which stored plans.

    Attributes:
        max_peak_bytes: the most memory that a plan may need on its fullest device.
        axes: what axes must be, by their names: ``{"tp": 8, "schedule": "1f1b"}``.
    """

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
class RunReport:
    """What happened when a plan ran.

    Attributes:
        status: ``ok``, ``out_of_memory`` or ``failed``; one that is ok has a step time or a throughput.
        job_id: what the scheduler calls the run.
        environment: whatever tells runs apart: versions, variables.
        measured_at: with its time zone; the server's now by default.
    """

    plan_id: str
    status: str = "ok"
    step_time_s: float | None = None
    tokens_per_s_per_device: float | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    steps: int | None = None
    job_id: str | None = None
    environment: Mapping[str, Any] | None = None
    note: str | None = None
    log_tail: str | None = None
    measured_at: datetime | None = None


def body_of(question: SearchQuestion | StudyQuestion | PlanQuestion | RunReport) -> dict[str, Any]:
    """The JSON object to send."""
    return {name: _plain(value) for name, value in _given(question)}


def query_of(chosen: PlanFilter) -> dict[str, str]:
    """The filter as a query string has it."""
    own = {name: str(value) for name, value in _given(chosen) if name != "axes"}
    return own | {axis: str(value) for axis, value in chosen.axes.items()}


def _given(value: SearchQuestion | StudyQuestion | PlanQuestion | RunReport | PlanFilter) -> list[tuple[str, Any]]:
    found = ((entry.name, getattr(value, entry.name)) for entry in fields(value))
    return [(name, part) for name, part in found if part is not None]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return value
