"""What may be chosen: layers of each device, and how many of them run again, as far as a framework can be told."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools, Ints
from costmodel.scenario import Scenario
from costmodel.schedules import placements
from costmodel.spec.plan import RECOMPUTES
from costmodel.stages import Placement
from costmodel.table import AXES, PlanTable
from planner.search.request import SearchRequest
from planner.search.space import recompute_policies

BUT_LAYOUT: tuple[str, ...] = tuple(axis for axis in AXES if axis != "layout")

_MOST_LEADING_DENSE = 8  # the ways in which so many fall into the first chunks are listed one by one
_NONE, _FULL = RECOMPUTES.index("none"), RECOMPUTES.index("full")


def lays_freely(scenario: Scenario) -> bool:
    """Whether the framework takes any number of layers for each chunk."""
    feature = "pipeline_layout_mtp" if scenario.model.num_mtp_layers else "pipeline_layout"
    return scenario.framework.has(feature)


def recomputes_partly(request: SearchRequest) -> bool:
    """Whether plans may run some layers of a device again and keep the others whole.

    Only where a plan may recompute nothing too: whoever pins ``full`` alone gets all layers.
    """
    return request.scenario.framework.has("recompute_block") and {_NONE, _FULL} <= set(recompute_policies(request))


def chooses_layers(scenario: Scenario, pp: Ints, vpp: Ints, schedule: Ints) -> Bools:
    """The plans whose layers are chosen exactly; those of the others follow recipes."""
    if not lays_freely(scenario):
        return np.zeros(len(pp), dtype=np.bool_)
    dense = scenario.model.dense_layers
    # Several kinds of layers that mix in one chunk: a recipe where a device has several chunks.
    mixes = isinstance(dense, tuple) or _MOST_LEADING_DENSE < dense < scenario.model.num_layers
    placed = placements(schedule) != Placement.BOTH_WAYS
    return np.asarray((pp > 1) & placed & ((vpp == 1) | (not mixes)))


def chooses_recompute(request: SearchRequest, recompute: Ints, interval: Ints) -> Bools:
    """The plans that choose how many layers run again."""
    return np.asarray((recompute == _FULL) & (interval == 1) & recomputes_partly(request))


def has_choice(request: SearchRequest, table: PlanTable) -> Bools:
    """The plans whose layers, or whose number of layers that run again, are chosen exactly."""
    layers = chooses_layers(request.scenario, table["pp"], table["vpp"], table["schedule"])
    recompute = chooses_recompute(request, table["recompute"], table["recompute_interval"])
    return np.asarray(layers | (recompute & (table["pp"] == 1)))


def may_choose(request: SearchRequest) -> bool:
    """Whether any plan of the search may have such a choice."""
    return lays_freely(request.scenario) or recomputes_partly(request)


def recipes_in_words(request: SearchRequest) -> tuple[str, ...]:
    """What of the space is searched with layouts by recipe alone although the framework can be told others."""
    scenario = request.scenario
    framework, model = scenario.framework, scenario.model
    depths = request.constraints.domain("pp", range(1, model.num_layers + 1))
    if not framework.schedules or max(depths, default=1) == 1:
        return ()
    if not lays_freely(scenario):
        if not framework.has("uneven_ends"):
            return ()
        return (
            f"stages are laid out by recipe: {framework.title} {framework.version} also takes a first and a last stage "
            "of their own size",
        )
    dense = model.dense_layers
    if isinstance(dense, tuple) and any(vpp > 1 for vpp in request.constraints.domain("vpp", (1, 2))):
        return (f"virtual stages are laid out by recipe: {model.name} alternates kinds of layers",)
    return ()
