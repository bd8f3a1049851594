"""What is recomputed and what lives in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.plan_rows import chunks_of_plan
from planner.export.megatron.core import Core

# Delayed scaling remembers the maxima of a forward pass, which a second one would change.
_TWICE = ("layernorm", "moe_act")


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """How many layers of every virtual stage are recomputed, pipeline stage by pipeline stage.

    ``counts`` has one entry where all are told the same.
    """

    counts: tuple[int, ...]


def say_recompute(core: Core) -> Blocks | None:
    """The policy; what it leaves to the target are counts of layers, where these are not in a setting yet."""
    plan, sheet = core.plan, core.sheet
    sheet.follows("recompute")
    if plan.recompute != "full":
        nothing = (0,) * plan.pp
        sheet.only("recomputed_layers_per_stage", nothing, why="whole layers run again under recompute full alone")
        sheet.only("recompute_interval", 1, why="whole layers run again under recompute full alone")
    if plan.recompute != "selective":
        sheet.only("recompute_modules", (), why="modules are named under recompute selective alone")
    if plan.recompute == "selective":
        _say_modules(core)
    if plan.recompute == "full":
        return _say_layers(core)
    return None


def _say_modules(core: Core) -> None:
    plan, sheet = core.plan, core.sheet
    core.put("recompute_granularity", "selective", "recompute")
    if not core.has("recompute_modules", []):
        why = "before it has names of modules, selective means the core of attention, core_attn"
        sheet.only("recompute_modules", ("core_attn",), why=why)
        return
    if not plan.recompute_modules:
        sheet.refuse("recompute_modules", (), "selective without a name means core_attn")
        return
    for module in plan.recompute_modules:
        name = f"recompute_modules {module}"
        if name not in sheet.words.words:
            sheet.refuse("recompute_modules", plan.recompute_modules, f"{module} is no module of it")
        elif not core.has(name):
            sheet.refuse("recompute_modules", plan.recompute_modules, core.lacking(name))
    twice = [module for module in plan.recompute_modules if module in _TWICE]
    if twice and plan.precision.startswith(("fp8", "mxfp8")):
        rule = "recompute_modules layernorm with fp8"
        if not core.has(rule):
            sheet.refuse("recompute_modules", plan.recompute_modules, core.lacking(rule))
        elif plan.precision == "fp8":
            why = f"delayed scaling can't run {twice[0]} twice: fp8-current can"
            sheet.refuse("recompute_modules", plan.recompute_modules, why)
    core.put("recompute_modules", list(plan.recompute_modules), "recompute_modules")


def _say_layers(core: Core) -> Blocks | None:
    """``uniform``: all layers, so many to a checkpoint; ``block``: the first so many of every virtual stage."""
    plan, sheet = core.plan, core.sheet
    core.put("recompute_granularity", "full", "recompute")
    if plan.recomputed_layers_per_stage == plan.layers_per_stage:
        core.put("recompute_method", "uniform", "recomputed_layers_per_stage")
        core.put("recompute_num_layers", plan.recompute_interval, "recompute_interval")
        return None
    core.put("recompute_method", "block", "recomputed_layers_per_stage")
    sheet.only("recompute_interval", 1, why="some of the layers can be recomputed one by one only")
    counts = _blocks(core)
    if counts is None:
        return None
    if len(set(counts)) == 1:
        core.put("recompute_num_layers", counts[0], "recomputed_layers_per_stage")
        return None
    return Blocks(counts=counts)


def _blocks(core: Core) -> tuple[int, ...] | None:
    """For each pipeline stage the number that its ranks are told; None where one number can't give its count."""
    plan = core.plan
    chunks = chunks_of_plan(plan)
    told: list[int] = []
    for stage, again in enumerate(plan.recomputed_layers_per_stage[: len(chunks)]):
        number = block_of(chunks[stage], again)
        if number is None:
            why = (
                f"the first N layers of chunks of {','.join(map(str, chunks[stage]))} layers are never {again} together"
            )
            core.sheet.refuse("recomputed_layers_per_stage", plan.recomputed_layers_per_stage, why)
            return None
        told.append(number)
    if len(told) != len(plan.recomputed_layers_per_stage):
        why = f"{len(chunks)} stages have layers"
        core.sheet.refuse("recomputed_layers_per_stage", plan.recomputed_layers_per_stage, why)
        return None
    return tuple(told)


def block_of(chunks: Sequence[int], again: int) -> int | None:
    """The number that makes the first so many layers of every chunk ``again`` together; None where none does."""
    for number in range(max(chunks, default=0) + 1):
        if sum(min(number, layers) for layers in chunks) == again:
            return number
    return None


def say_offload(core: Core) -> None:
    """The optimizer's state, or activations."""
    plan, sheet = core.plan, core.sheet
    if plan.offload == "optimizer":
        core.put("optimizer_cpu_offload", True, "offload")
        core.put("optimizer_offload_fraction", 1.0, "offload")
        core.put("use_precision_aware_optimizer", True, "offload")
    elif plan.offload == "activations":
        # One layer stays: it is used again at once.
        core.put("cpu_offloading_num_layers", core.model.num_layers - 1, "offload")
    else:
        sheet.only("offload", "none", why="optimizer and activations can live with the host")
