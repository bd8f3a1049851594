"""From one plan to another: the axes that change, and what merely follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from costmodel.plan_rows import encode, layout_of
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from costmodel.stages import Layout
from planner.check.distance import OWN_LAYERS, Reference, changed

Json = dict[str, Any]

_REPEATED = {"recomputed_layers_per_stage", "layers_per_chunk", "framework_version"}
# What of an axis changed where its word stays: other layers recomputed, other modules, layers cut otherwise.
_INSIDE = {
    "recompute": ("recomputed_layers_per_stage", "recompute_modules"),
    "layers_per_stage": ("layers_per_chunk",),
    "dp_shard": ("dp_replicate",),
}


def changes_between(reference: Reference, old: Plan, new: Plan, scenario: Scenario) -> tuple[list[Json], list[Json]]:
    """(changes that count as distance, changes that follow), each ``{axis, from, to}`` in the order of a plan."""
    layout = layout_of(new, scenario.model.num_layers)
    row = encode(scenario, new, Layout.EVEN) | {"layout": OWN_LAYERS if layout is None else int(layout)}
    if layout is None and new.layers_per_stage == old.layers_per_stage:
        row["layout"] = reference.row["layout"]
    differs = changed(reference, {axis: np.array([value], dtype=np.int64) for axis, value in row.items()})
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    told = {axis: _where_it_shows(axis, before, after) for axis, rows in differs.items() if rows[0]}
    changes: list[Json] = []
    follows: list[Json] = []
    for axis in Plan.model_fields:
        change = {"axis": axis, "from": before.get(axis), "to": after[axis]}
        if axis in told.values():
            changes.append(change)
        elif axis not in told and before.get(axis) != after[axis] and _says_more(axis, before, after):
            follows.append(change)
    return changes, follows


def _says_more(axis: str, before: Json, after: Json) -> bool:
    """Whether an axis that follows is worth telling: of modules, which other ones the new plan recomputes."""
    if axis == "recompute_modules":
        return bool(after[axis]) and set(before[axis]) != set(after[axis])
    return axis not in _REPEATED


def _where_it_shows(axis: str, before: Json, after: Json) -> str:
    inside = (field for field in _INSIDE.get(axis, ()) if before.get(field) != after[field])
    return next(inside, axis) if before.get(axis) == after[axis] else axis
