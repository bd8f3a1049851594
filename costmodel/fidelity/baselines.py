"""Two rules of thumb, scored like any predictor: what a cost model has to beat.

``N`` is the number of parameters that a token passes through, tokens are those of a step, the peak is the dense one of
the run's precision. Neither rule knows anything of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from costmodel.fidelity.rough_memory import active_params, first_stage_bytes, micro_batches, recomputes_all
from costmodel.runs.columns import Run
from costmodel.runs.prediction import RunPrediction


@dataclass(frozen=True, kw_only=True)
class Device:
    """What a rule of thumb knows of an accelerator; None is "unknown"."""

    peak_flops_per_s: float | None = None
    memory_bytes: float | None = None


DeviceOf = Callable[[Run], Device]

_GIB = 2**30
_CONSTANT_MFU = 0.4
_EFFICIENCY = 0.5


def constant_mfu(runs: Sequence[Run], device_of: DeviceOf) -> list[RunPrediction]:
    """40 % MFU whatever the plan: ``(6 N + 6 L s h) tokens / (devices * 0.4 peak)``. Says nothing of memory.

    The FLOPs are those of the MFU that ``planner suggest`` prints: six per parameter, and the causal half of attention.
    """
    return [_constant_mfu(run, device_of(run)) for run in runs]


def one_line(runs: Sequence[Run], device_of: DeviceOf) -> list[RunPrediction]:
    """Half the peak, with recomputation, attention and the pipeline bubble; state and activations for memory.

    ``time = 8 N tokens (1 + s / 6h) / (devices * 0.5 peak) * (1 + (pp - 1) / m)``, with 6 for 8 unless everything is
    recomputed. ``memory = state + activations`` of the first stage, see ``rough_memory``; a plan fits when
    that is no more than the device has.
    """
    return [_one_line(run, device_of(run)) for run in runs]


def _constant_mfu(run: Run, device: Device) -> RunPrediction:
    needed = _needed(run, device)
    if isinstance(needed, str):
        return RunPrediction(id=run.id, reason=needed)
    attention = 6 * (run.layers or 0) * (run.seq_len or 0) * (run.hidden or 0)
    flops_per_token = 6 * needed.active_params + attention
    return RunPrediction(
        id=run.id,
        step_time_s=flops_per_token * needed.tokens / (needed.devices * _CONSTANT_MFU * needed.peak),
        provenance="analytic",
    )


def _one_line(run: Run, device: Device) -> RunPrediction:
    needed = _needed(run, device)
    memory_bytes = first_stage_bytes(run)
    time_s = None if isinstance(needed, str) else _one_line_time_s(run, needed)
    fits = None if memory_bytes is None or device.memory_bytes is None else memory_bytes <= device.memory_bytes
    return RunPrediction(
        id=run.id,
        feasible=fits,
        step_time_s=time_s,
        peak_mem_gb=None if memory_bytes is None else memory_bytes / _GIB,
        provenance="analytic" if time_s else "",
        reason=needed if isinstance(needed, str) else "",
    )


@dataclass(frozen=True, kw_only=True)
class _Needed:
    """The numbers without which neither rule says anything."""

    active_params: float
    tokens: int
    devices: int
    peak: float


def _needed(run: Run, device: Device) -> _Needed | str:
    """The numbers, or which of them is missing."""
    params = active_params(run)
    if params is None:
        return "neither parameters nor a shape to count them from"
    if not (run.global_batch and run.seq_len):
        return "no global_batch or seq_len"
    if not run.devices:
        return "no devices"
    if device.peak_flops_per_s is None:
        return "no peak known for the accelerator and precision"
    return _Needed(
        active_params=params, tokens=run.global_batch * run.seq_len, devices=run.devices, peak=device.peak_flops_per_s
    )


def _one_line_time_s(run: Run, needed: _Needed) -> float:
    per_token = (8 if recomputes_all(run) else 6) * needed.active_params
    attention = run.seq_len / (6 * run.hidden) if run.seq_len and run.hidden else 0.0
    in_flight = micro_batches(run)
    bubble = ((run.pp or 1) - 1) / in_flight if in_flight else 0.0
    seconds = per_token * needed.tokens * (1 + attention) / (needed.devices * _EFFICIENCY * needed.peak)
    return seconds * (1 + bubble)
