"""Layers of every stage and how many of them run again, from Megatron-Core's settings."""

from __future__ import annotations

from planner.export.megatron.layers import LAYOUT
from planner.export.megatron.layout import layout_counts
from planner.export.megatron.settings import Settings
from planner.export.numbers import whole_number

_SPLITS = (
    "virtual_pipeline_model_parallel_size",
    "num_virtual_stages_per_pipeline_rank",
    "num_layers_per_virtual_pipeline_stage",
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)


def read_layers(s: Settings, layers: int | None) -> list[list[int]] | None:
    """The pipeline; layers of every chunk, device by device, None where they are not said."""
    pp = s.number("pipeline_model_parallel_size", 1) or 1
    counts, vpp, names = _virtual_stages(s, pp, layers)
    s.say("pp", pp, "pipeline_model_parallel_size")
    if s.unknown & {"pipeline_model_parallel_size", LAYOUT, *_SPLITS}:
        return None
    s.say("vpp", vpp, *names)
    s.say("schedule", "interleaved_1f1b" if vpp > 1 and pp > 1 else "1f1b")
    if counts is None or len(counts) != pp * vpp:
        return None
    chunks = [[counts[turn * pp + device] for turn in range(vpp)] for device in range(pp)]
    s.say("layers_per_stage", [sum(device) for device in chunks], *names)
    if vpp > 1:
        s.say("layers_per_chunk", chunks, *names)
    return chunks


def _virtual_stages(s: Settings, pp: int, layers: int | None) -> tuple[list[int] | None, int, list[str]]:
    """(decoder layers of every virtual stage in the order of a micro-batch, stages a device, what says so)."""
    per_rank = s.number("virtual_pipeline_model_parallel_size") or s.number("num_virtual_stages_per_pipeline_rank")
    per_stage = s.number("num_layers_per_virtual_pipeline_stage")
    names = ["virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"]
    names.append("num_layers_per_virtual_pipeline_stage")
    layout = s.get(LAYOUT)
    ends = s.number("num_layers_in_first_pipeline_stage"), s.number("num_layers_in_last_pipeline_stage")
    counted = s.on("account_for_embedding_in_pipeline_split"), s.on("account_for_loss_in_pipeline_split")
    if layout is not None:
        found = layout_counts(str(layout))
        if found is None or len(found[0]) % pp:
            s.fail(LAYOUT, f"a layout of a multiple of {pp} stages is expected, as in Et*7|(t*8|)*14t*7L")
            return None, per_rank or 1, names
        return found[0], len(found[0]) // pp, [LAYOUT]
    if ends != (None, None):
        names += ["num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"]
        return _of_ends(s, pp, per_rank or 1, layers, ends), per_rank or 1, names
    names += ["account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"]
    slots = None if layers is None else layers + sum(counted)
    vpp = per_rank or 1
    if per_stage and slots is not None:
        vpp = max(slots // (pp * per_stage), 1)
    elif per_stage:
        s.fail("num_layers_per_virtual_pipeline_stage", "the number of layers is not given, so stages can't be counted")
    if slots is None or (pp == 1 and vpp == 1):
        return (None if layers is None else [layers]), vpp, names
    if slots % (pp * vpp) or slots < pp * vpp:
        s.fail("pipeline_model_parallel_size", f"{slots} layers don't fall into {pp * vpp} equal stages")
        return None, vpp, names
    counts = [slots // (pp * vpp)] * (pp * vpp)
    counts[0] -= counted[0]
    counts[-1] -= counted[1]
    return counts, vpp, names


def _of_ends(
    s: Settings, pp: int, vpp: int, layers: int | None, ends: tuple[int | None, int | None]
) -> list[int] | None:
    """A first and a last stage of their own size; stages between, or those without one, share the rest."""
    first, last = ends
    others = pp - (first is not None) - (last is not None)
    left = None if layers is None else layers - (first or 0) - (last or 0)
    name = "num_layers_in_first_pipeline_stage" if first is not None else "num_layers_in_last_pipeline_stage"
    if left is None or left < 0 or others < 0 or (left % others or left < others if others else left):
        s.fail(name, "the rest of the layers doesn't fall into equal stages")
        return None
    middle = left // others if others else 0
    stages = [middle] * pp
    stages[0] = middle if first is None else first
    stages[-1] = middle if last is None else last
    if any(count % vpp for count in stages):
        s.fail(name, f"stages of {stages} layers don't fall into {vpp} equal chunks")
        return None
    return [count // vpp for _ in range(vpp) for count in stages]


def read_recompute(s: Settings, chunks: list[list[int]] | None) -> None:
    kind, method = s.get("recompute_granularity"), s.get("recompute_method")
    modules, number = s.get("recompute_modules"), s.number("recompute_num_layers")
    of_stages = s.get("recompute_num_layers_of_stages")
    if s.on("recompute_activations"):
        kind = "selective"
    names = ("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_activations")
    if kind not in (None, "selective", "full"):
        s.fail("recompute_granularity", "selective or full is expected")
        return
    s.say("recompute", kind or "none", *names, after=(names[0], names[3]))
    if kind == "selective":
        named = modules if isinstance(modules, list) else [modules] if modules else ["core_attn"]
        s.say("recompute_modules", [str(module) for module in named], "recompute_modules")
    if kind != "full":
        return
    if method == "uniform" or method is None:
        s.say("recompute_interval", number or 1, *names)
        return
    told = [whole_number(one) for one in of_stages] if isinstance(of_stages, list) else [number] * len(chunks or ())
    known = [count for count in told if count is not None and count >= 0]
    if chunks is None or not len(known) == len(told) == len(chunks):
        s.fail("recompute_num_layers", "how many layers of each stage run again can't be told without their layers")
        return
    again = [sum(min(count, of) for of in device) for count, device in zip(known, chunks, strict=True)]
    s.say("recomputed_layers_per_stage", again, *names, "recompute_num_layers_of_stages")
