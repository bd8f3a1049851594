"""Layers of each stage and chunk, and how many of them are recomputed, where a draft leaves them open."""

from __future__ import annotations

from costmodel.plan_rows import Chunks
from costmodel.recompute_modules import selective_modules
from costmodel.rules import rules_for
from costmodel.rules.layouts import LAYOUT_AXES
from costmodel.rules.rule import as_columns
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.plan import SCHEDULES, Schedule
from costmodel.stages import Layout, layers_per_chunk
from planner.check.settling import Settling


def settle_layers(plan: Settling, scenario: Scenario) -> bool:
    """Layers of each stage and chunk; False where the pipeline is too deep for the model to have any."""
    draft, layers = plan.draft, scenario.model.num_layers
    pp, vpp, schedule = plan.values["pp"], plan.values["vpp"], plan.values["schedule"]
    plan.values["layers_per_chunk"] = draft.layers_per_chunk
    if draft.layers_per_chunk is not None:
        sums = tuple(sum(device) for device in draft.layers_per_chunk)
        plan.follow("layers_per_stage", sums, "sums of layers_per_chunk")
    elif draft.layers_per_stage is not None:
        plan.values["layers_per_stage"] = draft.layers_per_stage
        if 1 < vpp <= layers + 2:
            cut = tuple(_cut(count, vpp) for count in draft.layers_per_stage)
            plan.assume("layers_per_chunk", cut, "every stage's layers over its chunks, as even as possible")
    elif pp * vpp > layers + 2:
        plan.values["layers_per_stage"] = ()
        return False
    else:
        chunks = _usual_chunks(scenario, pp, vpp, schedule)
        even = "as even as possible, lighter ends"
        plan.assume("layers_per_stage", tuple(map(sum, chunks)), even)
        if vpp > 1:
            plan.assume("layers_per_chunk", chunks, even)
    return True


def _usual_chunks(scenario: Scenario, pp: int, vpp: int, schedule: Schedule) -> Chunks:
    """The plainest layout that no rule refuses."""
    layers = scenario.model.num_layers
    rules = [rule for rule in rules_for(scenario.framework) if set(rule.axes) <= set(LAYOUT_AXES)]
    placement = placement_of(schedule)
    plainest = layers_per_chunk(layers, pp, vpp, Layout.EVEN, placement)
    assert plainest is not None, "an even layout has no chunk below 0 layers"
    for layout in Layout:
        chunks = layers_per_chunk(layers, pp, vpp, layout, placement)
        row = as_columns({"pp": pp, "vpp": vpp, "layout": int(layout), "schedule": SCHEDULES.index(schedule)})
        if chunks is not None and all(rule.holds(scenario, row).all() for rule in rules):
            return chunks
    return plainest


def _cut(layers: int, parts: int) -> tuple[int, ...]:
    base, extra = divmod(layers, parts)
    return tuple(base + (part < extra) for part in range(parts))


def settle_recompute(plan: Settling, scenario: Scenario) -> None:
    """The policy, from what it would have to be for the rest of the draft, and the layers that it is about."""
    draft, layers = plan.draft, plan.values["layers_per_stage"]
    if draft.recomputed_layers_per_stage is not None and any(draft.recomputed_layers_per_stage):
        recompute = plan.follow("recompute", "full", "recomputed_layers_per_stage")
    elif draft.recompute_modules:
        recompute = plan.follow("recompute", "selective", "recompute_modules")
    else:
        recompute = plan.assume("recompute", "none", "not given")
    if recompute == "selective":
        whose = f"those of {scenario.framework.title} for this model"
        plan.assume("recompute_modules", selective_modules(scenario), whose)
    else:
        plan.values["recompute_modules"] = draft.recompute_modules or ()
    again = layers if recompute == "full" else (0,) * len(layers)
    if layers:
        plan.follow("recomputed_layers_per_stage", again, f"recompute {recompute}")
    else:
        plan.values["recomputed_layers_per_stage"] = draft.recomputed_layers_per_stage or ()
