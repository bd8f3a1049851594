"""Where the search's best plan differs from the procedure's, axis by axis, and what each difference gains or costs.

From the one plan to the other one axis is changed after the other, each plan on the way is priced, and the change of
its time and memory goes to the axis. So the parts sum to the whole difference, as far as one order of changes can say.
Data parallelism takes the devices that are left; axes that only make a plan together are told together.
"""

from __future__ import annotations

from typing import Any

from costmodel.arrays import num
from costmodel.facts import Facts
from costmodel.plan_rows import encode, layout_of, plan_of
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from costmodel.stages import Layout, layers_per_chunk
from costmodel.table import AXES, PlanTable, mesh_size
from planner.explain.differences import (
    axis_differences,
    host_difference_bytes,
    in_unit,
    in_words,
    memory_difference_bytes,
    time_differences,
)
from planner.search.answer import predictions
from planner.search.need import Memory, Need
from planner.search.objective import Objective

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


_TOO_BIG: dict[tuple[Memory, ...], str] = {
    (): "",
    ("device",): " (too big until what follows)",
    ("host",): " (too big for the hosts until what follows)",
    ("device", "host"): " (too big, for the hosts too, until what follows)",
}


def row_of(scenario: Scenario, plan: Json) -> dict[str, int]:
    """A plan of an answer as a row."""
    read = Plan.model_validate(plan)
    layout = layout_of(read, scenario.model.num_layers)
    return encode(scenario, read, Layout.EVEN if layout is None else layout)


def disagreements(
    scenario: Scenario,
    facts: Facts,
    objective: Objective,
    ours: dict[str, int],
    theirs: dict[str, int],
    best: Json | None = None,
) -> list[Json]:
    """One entry for every axis, or axes, in which ``theirs`` differs from ``ours``.

    Each has ``axes`` (``{axis, ours, theirs}``), ``value`` in the objective's unit, ``step_time_s``, ``time``,
    ``memory_bytes`` and ``host_bytes_per_node`` as differences, whether the plan on the way ``fits`` and which memory
    it is ``short_of``, and all of it in ``told``.

    Args:
        best: ``theirs`` with its plan and prediction, as an answer has them: what its layers are, no row says. The last
            entry, without axes, is what comes of layers of its own.
    """
    path = _path(scenario, ours, theirs)
    plans = [plan_of(scenario, row).model_dump(mode="json") for row in path]
    priced = predictions(scenario, facts, PlanTable.of_rows(path))
    if best is not None and plans[-1] != best["plan"]:
        path, plans, priced = [*path, theirs], [*plans, best["plan"]], [*priced, best["prediction"]]
    found: list[Json] = []
    last = 0
    for place in range(1, len(path)):
        axes = axis_differences(plans[last], plans[place])
        if not axes and place < len(path) - 1:
            # Nothing that has a name yet, other layers on the stages say: it goes with the next axis.
            continue
        before, after = priced[last], priced[place]
        time, memory = time_differences(before, after), memory_difference_bytes(before, after)
        hosts = host_difference_bytes(before, after)
        value = value_of(objective, path[place], after) - value_of(objective, path[last], before)
        short = Need.of_prediction(after).short_of
        told = in_words(axes, time, memory, hosts, in_unit(objective.kind, value))
        last = place
        found.append(
            {
                "axes": [{"axis": one["axis"], "procedure": one["ours"], "search": one["theirs"]} for one in axes],
                "value": value,
                "step_time_s": after["step_time_s"] - before["step_time_s"],
                "time": time,
                "memory_bytes": memory,
                "host_bytes_per_node": hosts,
                "fits": not short,
                "short_of": list(short),
                "told": told + _TOO_BIG[short],
            }
        )
    return found


def value_of(objective: Objective, row: dict[str, int], prediction: Json) -> float:
    """What is minimised, in its unit."""
    return objective.shown(float(objective.value(num(prediction["step_time_s"]), num(mesh_size(row)))))


def _path(scenario: Scenario, ours: dict[str, int], theirs: dict[str, int]) -> list[dict[str, int]]:
    """Plans from the one to the other, each with more axes of ``theirs`` than the one before."""
    path, target = [ours], {**ours}
    resized = _completed(scenario, target, theirs) if mesh_size(ours) != mesh_size(theirs) else None
    if resized is not None:
        # More or fewer devices are a choice of their own, which no other axis answers for.
        path.append(resized)
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
