"""Where the search's best plan differs from the procedure's, axis by axis, and what each difference gains or costs.

From the one plan to the other one axis is changed after the other, each plan on the way is priced, and the change of
its time and memory goes to the axis. So the parts sum to the whole difference, as far as one order of changes can say.
Data parallelism takes the devices that are left; axes that only make a plan together are told together.
"""

from __future__ import annotations

from typing import Any

from costmodel.facts import Facts
from costmodel.plan_rows import encode, layout_of, plan_of
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from costmodel.stages import Layout, layers_per_chunk
from costmodel.table import AXES, PlanTable, mesh_size
from planner.explain.differences import axis_differences, in_words, memory_difference_bytes, time_differences
from planner.search.answer import predictions

Json = dict[str, Any]

_FOLLOWS = frozenset({"dp", "dp_replicate", "num_microbatches"})
# What is changed together: axes that say one thing, or mean nothing without each other. The rest goes one by one.
_TOGETHER: tuple[tuple[str, ...], ...] = (
    ("zero_stage", "gradient_sync", "reshard_after", "fsdp_prefetch", "zero_plus"),
    ("recompute", "recompute_modules", "recompute_interval"),
    ("cp", "cp_comm_type", "cp_a2a_degree", "cp_balanced"),
    ("tp", "tp_overlap"),
    ("ep", "etp", "moe_dispatcher", "ep_overlap", "moe_capacity_factor"),
    ("pp", "vpp", "schedule", "layout"),
    ("micro_batch_size",),
    ("dp_shard",),
)


def row_of(scenario: Scenario, plan: Json) -> dict[str, int]:
    """A plan of an answer as a row."""
    read = Plan.model_validate(plan)
    layout = layout_of(read, scenario.model.num_layers)
    return encode(scenario, read, Layout.EVEN if layout is None else layout)


def disagreements(scenario: Scenario, facts: Facts, ours: dict[str, int], theirs: dict[str, int]) -> list[Json]:
    """One entry for every axis, or axes, in which ``theirs`` differs from ``ours``.

    Each has ``axes`` (``{axis, ours, theirs}``), ``step_time_s``, ``time`` and ``memory_bytes`` as differences, whether
    the plan on the way ``fits``, and all of it in ``told``.
    """
    path = _path(scenario, ours, theirs)
    plans = [plan_of(scenario, row).model_dump(mode="json") for row in path]
    priced = predictions(scenario, facts, PlanTable.of_rows(path))
    found: list[Json] = []
    last = 0
    for place in range(1, len(path)):
        axes = axis_differences(plans[last], plans[place])
        if not axes and place < len(path) - 1:
            # Nothing that has a name yet, other layers on the stages say: it goes with the next axis.
            continue
        before, after = priced[last], priced[place]
        time, memory = time_differences(before, after), memory_difference_bytes(before, after)
        fits = after["memory"]["peak_bytes"] <= after["memory"]["usable_bytes"]
        last = place
        found.append(
            {
                "axes": [{"axis": one["axis"], "procedure": one["ours"], "search": one["theirs"]} for one in axes],
                "step_time_s": after["step_time_s"] - before["step_time_s"],
                "time": time,
                "memory_bytes": memory,
                "fits": fits,
                "told": in_words(axes, time, memory) + ("" if fits else " (too big until what follows)"),
            }
        )
    return found


def _path(scenario: Scenario, ours: dict[str, int], theirs: dict[str, int]) -> list[dict[str, int]]:
    """Plans from the one to the other, each with more axes of ``theirs`` than the one before."""
    path, target = [ours], {**ours}
    named = {axis for group in _TOGETHER for axis in group} | _FOLLOWS
    for group in (*_TOGETHER, *((axis,) for axis in AXES if axis not in named)):
        target |= {axis: theirs[axis] for axis in group}
        row = _completed(scenario, target, theirs)
        if row is not None and row != path[-1]:
            path.append(row)
    if path[-1] != theirs:
        path.append(theirs)
    return path


def _completed(scenario: Scenario, row: dict[str, int], theirs: dict[str, int]) -> dict[str, int] | None:
    """The row with the data parallelism that is left for it; None where it makes no plan."""
    batch, used = scenario.workload.global_batch_size, mesh_size(theirs)
    dp, left = divmod(used, row["tp"] * row["cp"] * row["pp"])
    if left or dp == 0 or batch % (dp * row["micro_batch_size"]):
        return None
    if row["ep"] * row["etp"] > row["tp"] * row["cp"] * dp:
        return None
    if layers_per_chunk(scenario.model.num_layers, row["pp"], row["vpp"], Layout(row["layout"])) is None:
        return None
    shard = row["dp_shard"] if row["dp_shard"] == theirs["dp_shard"] and dp % row["dp_shard"] == 0 else dp
    shard = 1 if row["zero_stage"] == 0 else shard
    rest = {"dp": dp, "dp_shard": shard, "dp_replicate": dp // shard}
    return row | rest | {"num_microbatches": batch // (dp * row["micro_batch_size"])}
