"""MFU and HFU, with the definition they are counted by: which FLOPs a token needs, and against which peak.

Three ways to count FLOPs are in use and two peaks, and published figures seldom say which. ``mfu`` and ``hfu`` here
count ``6 N`` and the causal half of attention against the peak of the format that the large GEMMs run in. The other
conventions stand beside them, so that a published figure can be compared with its own kind:

* ``mfu_parameters_only``: ``6 N`` and no attention (Kaplan 2020, arXiv 2001.08361);
* ``mfu_full_attention``: ``6 N + 12 L H Q T``, the whole score matrix (Chowdhery 2022, arXiv 2204.02311, appendix B;
  Narayanan 2021, arXiv 2104.04473);
* ``mfu_bf16_peak``: as ``mfu`` against the 16-bit peak, which an fp8 run is often held against: the same speed is about
  half the utilisation of the fp8 peak.

Pinned by ``tests/costmodel/test_utilisation.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from costmodel.flops import full_attention_flops_per_token, matmul_params, model_flops_per_token
from costmodel.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    """How well a step uses the devices, by stated definitions. Shares are of 1, rates of devices that are used.

    Attributes:
        attention: how ``model_flops_per_token`` counts attention: the half of the scores that a causal mask leaves.
        peak: the number format whose dense peak ``mfu`` and ``hfu`` are held against; ``peak_flops_per_s``: that peak.
        parameters: N of ``6 N``: what one token multiplies with (active experts, the head, no input embedding).
        hardware_flops_per_token: what is executed: model FLOPs and those that recomputation runs again.
        model_flops_per_s_per_device: what people quote as TFLOP/s per GPU, in FLOP/s.
        mfu_bf16_peak: None on a device without bf16.
    """

    mfu: float
    hfu: float
    attention: Literal["causal"] = "causal"
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


def utilisation(
    scenario: Scenario, *, step_time_s: float, devices: int, recomputed_flops_per_token: float
) -> Utilisation:
    """Utilisation of a step of ``step_time_s`` seconds on so many devices.

    Args:
        recomputed_flops_per_token: what the plan runs again, from ``costmodel.flops``.
    """
    model, work, accelerator = scenario.model, scenario.workload, scenario.cluster.accelerator
    seq_len, peak = work.seq_len, accelerator.peak(work.precision.compute)
    parameters, needed = matmul_params(model), model_flops_per_token(model, seq_len)
    executed = needed + recomputed_flops_per_token
    tokens_per_s = work.tokens_per_step / step_time_s
    per_device = tokens_per_s / devices
    bf16 = accelerator.peak_flops_per_s.get("bf16")
    return Utilisation(
        mfu=needed * per_device / peak,
        hfu=executed * per_device / peak,
        peak=work.precision.compute,
        peak_flops_per_s=peak,
        parameters=parameters,
        model_flops_per_token=needed,
        hardware_flops_per_token=executed,
        model_flops_per_step=needed * work.tokens_per_step,
        model_flops_per_s_per_device=needed * per_device,
        tokens_per_s=tokens_per_s,
        mfu_parameters_only=6 * parameters * per_device / peak,
        mfu_full_attention=(6 * parameters + 3 * full_attention_flops_per_token(model, seq_len)) * per_device / peak,
        mfu_bf16_peak=needed * per_device / bf16 if bf16 is not None else None,
    )
