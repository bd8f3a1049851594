"""Precision, gradients and optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.scenario import Scenario
from planner.export.megatron.core import Core

# The formats are those of Megatron-Bridge's recipes of the same name (training/mixed_precision.py of its 0.3.1 wheel).
PRECISIONS: Mapping[str, Mapping[str, Any]] = {
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "fp32": {},
    "fp8": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "delayed"},
    "fp8-current": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "fp8-blockwise": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "blockwise"},
    "mxfp8": {"bf16": True, "fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "nvfp4": {"bf16": True, "fp4": "e2m1", "fp4_recipe": "nvfp4"},
}
ADAM = ("adamw", "adam")
BF16_MOMENTS = "adamw-bf16-moments"
_OPTIMIZERS = {"adamw": "adam", "adam": "adam", BF16_MOMENTS: "adam", "sgd": "sgd", "muon": "muon", "lion": "lion"}
_START_SHARE = 0.2  # of the layers kept in bf16: two at the start, eight at the end (arXiv 2509.25149, appendix A)


def say_numbers(core: Core) -> None:
    _say_precision(core)
    _say_gradients(core)
    say_optimizer(core)
    say_overlap(core)


def _say_precision(core: Core) -> None:
    precision = core.plan.precision
    said = PRECISIONS.get(precision)
    if said is None:
        core.sheet.refuse("precision", precision, f"it trains in {', '.join(PRECISIONS)}")
        return
    core.sheet.follows("precision")
    for name, value in said.items():
        if value == "delayed" and not core.has(name, value):
            continue  # before there were recipes, this was the one
        core.put(name, value, "precision")
    kept = layers_kept(core.job.scenario)
    if kept is not None:
        core.put("first_last_layers_bf16", True, "precision")
        core.put("num_layers_at_start_in_bf16", kept[0], "precision")
        core.put("num_layers_at_end_in_bf16", kept[1], "precision")


def layers_kept(scenario: Scenario) -> tuple[int, int] | None:
    """How many layers at the start and at the end stay in 16 bits; None where none do."""
    share = scenario.workload.precision.kept_layer_share
    if not share:
        return None
    kept = max(round(share * scenario.model.num_layers), 1)
    start = round(_START_SHARE * kept)
    return start, kept - start


def _say_gradients(core: Core) -> None:
    """Beside 16-bit parameters gradients are accumulated and reduced in 32 bits, or in the parameters' type."""
    plan = core.plan
    usual = {"fp16": ("fp32", "fp16"), "fp32": ("fp32",)}.get(plan.precision, ("fp32", "bf16"))
    core.sheet.only("gradient_dtype", *usual, why=f"with {plan.precision} they are {' or '.join(usual)}")
    if plan.gradient_dtype == "bf16":
        core.put("grad_reduce_in_fp32", False, "gradient_dtype")
    elif plan.gradient_dtype == "fp32" and plan.precision != "fp32":
        core.put("grad_reduce_in_fp32", True, "gradient_dtype")


def say_optimizer(core: Core) -> None:
    plan, sheet = core.plan, core.sheet
    name = _OPTIMIZERS.get(plan.optimizer)
    if name is None:
        sheet.refuse("optimizer", plan.optimizer, f"it has {', '.join(_OPTIMIZERS)}")
        return
    if name in ("muon", "lion") and not core.has(f"optimizer {name}"):
        sheet.refuse("optimizer", plan.optimizer, core.lacking(f"optimizer {name}"))
    if name == "muon" and plan.zero_stage:
        sheet.refuse("zero_stage", plan.zero_stage, "muon has no distributed optimizer: it must be 0")
    core.put("optimizer", name, "optimizer")
    if plan.optimizer == BF16_MOMENTS:
        if not plan.zero_stage:
            sheet.refuse("optimizer", plan.optimizer, "moments in 16 bits need the distributed optimizer, zero_stage 1")
        for setting, value in (("use_precision_aware_optimizer", True), *moments("bf16")):
            core.put(setting, value, "optimizer")


def moments(dtype: str) -> tuple[tuple[str, str], ...]:
    return ("exp_avg_dtype", dtype), ("exp_avg_sq_dtype", dtype)


def say_overlap(core: Core) -> None:
    """Reductions and gathers beside the backward and the forward pass, as the step is priced."""
    plan = core.plan
    if plan.dp * plan.cp == 1 or plan.optimizer == "muon":
        return
    core.put("overlap_grad_reduce", True)
    if plan.zero_stage:
        core.put("overlap_param_gather", True)
