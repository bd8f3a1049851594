"""The pipeline: its stages, and which layers are on each, by the plainest of the settings that the version has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.plan_rows import Chunks, chunks_of_plan
from planner.export.megatron.core import Core
from planner.export.megatron.layout import layout_text

LAYOUT = "pipeline_model_parallel_layout"
_FIELDS = ("layers_per_stage", "layers_per_chunk")
_ENDS = "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"
_ACCOUNT = "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"


@dataclass(frozen=True, kw_only=True)
class Split:
    """How layers are laid out.

    Attributes:
        settings: beside the number of virtual stages; empty where an even split is what happens anyway.
        layers_per_virtual_stage: with the ends that count as layers, where all virtual stages have as many.
    """

    settings: Mapping[str, Any]
    layers_per_virtual_stage: int | None = None


def say_pipeline(core: Core) -> Split | None:
    """Degree, schedule and layers; the number of virtual stages is left to the target, which gets the split.

    None where the layers have been refused.
    """
    plan, model = core.plan, core.model
    core.put("pipeline_model_parallel_size", plan.pp, "pp")
    interleaved = plan.pp > 1 and plan.vpp > 1
    wanted = "interleaved_1f1b" if interleaved else "1f1b"
    core.sheet.only("schedule", wanted, why=f"pp {plan.pp} with vpp {plan.vpp} runs {wanted}")
    if plan.pp == 1:
        core.sheet.only("vpp", 1, why="virtual stages need a pipeline")
    chunks = chunks_of_plan(plan)
    if not _agree(core, chunks):
        return None
    split = _split(core, chunks)
    if split is None:
        field = "layers_per_chunk" if plan.layers_per_chunk else "layers_per_stage"
        core.sheet.refuse(field, getattr(plan, field), _why_not(core))
        core.sheet.follows(*_FIELDS)
        return None
    for name, value in split.settings.items():
        core.put(name, value)
    core.sheet.follows(*_FIELDS)
    if model.num_mtp_layers and plan.pp == 1 and plan.vpp > 1:
        core.refuse_model("num_mtp_layers", "virtual stages need a pipeline")
    return split


def _agree(core: Core, chunks: Chunks) -> bool:
    """Whether the lists of layers say the same, and all of the model's."""
    plan, layers = core.plan, core.model.num_layers
    told = True
    if tuple(map(sum, chunks)) != plan.layers_per_stage or any(len(device) != plan.vpp for device in chunks):
        core.sheet.refuse("layers_per_chunk", plan.layers_per_chunk, "its sums are not layers_per_stage on vpp chunks")
        told = False
    if sum(plan.layers_per_stage) != layers:
        core.sheet.refuse("layers_per_stage", plan.layers_per_stage, f"the model has {layers} layers")
        told = False
    if not told:
        core.sheet.follows(*_FIELDS)
    return told


def _split(core: Core, chunks: Chunks) -> Split | None:
    counts = [device[turn] for turn in range(len(chunks[0])) for device in chunks]
    if len(set(counts)) == 1:
        return Split(settings={}, layers_per_virtual_stage=counts[0])
    if core.plan.pp == 1:
        return None
    mtp = core.model.num_mtp_layers
    if core.has(LAYOUT, "") and (not mtp or core.has(f"{LAYOUT} with mtp_num_layers")):
        return Split(settings={LAYOUT: layout_text(counts, mtp)})
    return _ends_count(core, counts) or _uneven_ends(core, chunks)


def _ends_count(core: Core, counts: Sequence[int]) -> Split | None:
    """Equal virtual stages, the embedding or the loss counted as a layer."""
    if not core.has(_ACCOUNT[0]):
        return None
    for embedding, loss in ((False, True), (True, False), (True, True)):
        slots = [*counts]
        slots[0] += embedding
        slots[-1] += loss
        if len(set(slots)) == 1:
            said = dict(zip(_ACCOUNT, (embedding, loss), strict=True))
            settings = {name: True for name, on in said.items() if on}
            return Split(settings=settings, layers_per_virtual_stage=slots[0])
    return None


def _uneven_ends(core: Core, chunks: Chunks) -> Split | None:
    """A first and a last stage of their own size, equal ones between, equal chunks on each."""
    equal_inside = all(len(set(device)) == 1 and device[0] > 0 for device in chunks)
    if not equal_inside or len(set(chunks[1:-1])) > 1 or not core.has(_ENDS[0], 1):
        return None
    if core.plan.vpp > 1 and not core.has("virtual stages beside uneven ends"):
        return None
    first = {_ENDS[0]: sum(chunks[0])}
    # Of two stages the second has the rest: old versions divide by the stages between those that are said.
    return Split(settings=first if len(chunks) == 2 else first | {_ENDS[1]: sum(chunks[-1])})


def _why_not(core: Core) -> str:
    if core.plan.pp == 1:
        return "without a pipeline all layers are on one stage"
    known = ["equal virtual stages"]
    known += ["embedding and loss counted as layers"] * core.has(_ACCOUNT[0])
    known += ["a first and last stage of their own size"] * core.has(_ENDS[0], 1)
    return f"there are settings for {', '.join(known)}"
