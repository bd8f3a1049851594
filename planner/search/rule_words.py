"""Rules in a conflict, in words: each with the numbers of a mesh that breaks it, and memory with those of a plan."""

from __future__ import annotations

from typing import Any

from costmodel.facts import Facts
from costmodel.layers import total
from costmodel.predict import predict_stages
from costmodel.spec.options import OFFLOADS
from costmodel.spec.plan import RECOMPUTES
from costmodel.table import PlanTable, stage_table
from planner.search.changes import DEVICES
from planner.search.choices import offloads
from planner.search.eliminate import MEMORY, PINS
from planner.search.need import Need
from planner.search.request import SearchRequest
from planner.search.solve import Outcome

Json = dict[str, Any]

STATE_TERMS = ("parameters", "weight_copies", "gradients", "optimizer")
"""The memory terms of model state."""

_GIB = 2**30


def every_rule(request: SearchRequest, facts: Facts, outcome: Outcome) -> list[Json]:
    """Each rule with how many meshes it stops and one of them with its numbers: where the smallest are not known."""
    scenario, elimination = request.scenario, outcome.elimination
    conflict: list[Json] = []
    if not outcome.meshes:
        reason = no_product(request)
        if request.least_devices > 1:
            reason += f" (--min-used {request.min_used:g} of {scenario.devices})"
        conditions = request.constraints.describe()
        reason += f" under {conditions}" if conditions else ""
        conflict.append({"rule": DEVICES, "meshes": 0, "reason": reason})

    # What every legal mesh breaks comes before what keeps others from being legal.
    # Among rules that stop as many, the one that reads the fewest axes says the most.
    def place(item: tuple[str, int]) -> tuple[bool, int, int]:
        name, count = item
        return name != MEMORY, -count, len(elimination.examples[name][0].axes) if name in elimination.examples else 0

    for rule, count in sorted(elimination.counts.items(), key=place):
        if rule == MEMORY:
            reason = memory_reason(request, facts, outcome.leanest)
        elif rule == PINS:
            reason = f"{request.constraints.describe()} leave no way to lay out stages, sharding or the CP exchange"
        else:
            broken, row = elimination.examples[rule]
            reason = broken.reason(scenario, row)
        conflict.append({"rule": rule, "meshes": count, "reason": reason})
    return conflict


def no_product(request: SearchRequest) -> str:
    """That no mesh has a number of devices that may be used."""
    least, most = request.least_devices, request.scenario.devices
    span = f"{most}" if least == most else f"{least}..{most}"
    return f"no product tp * cp * pp * dp of the values that may be used lies in {span} devices"


def memory_reason(request: SearchRequest, facts: Facts, leanest: PlanTable | None) -> str:
    """What the leanest plan needs of the memory that is short, the device's, the host's or both, against what there is.

    The leanest is the one that lacks the least, by share of what there is.
    """
    scenario = request.scenario
    usable, hosts = scenario.usable_bytes / _GIB, scenario.cluster.host_memory_bytes_per_node
    if leanest is None:
        beside = f" and {hosts / _GIB:.1f} GiB of host memory per node" if hosts and any(offloads(request)) else ""
        return f"no plan of these meshes fits into the usable {usable:.1f} GiB per device{beside}"
    table = leanest
    full = predict_stages(facts, table, stage_table(scenario, table, every_stage=True))
    need = Need(
        device_bytes=float(full.peak_bytes[0]),
        usable_bytes=scenario.usable_bytes,
        host_bytes=float(full.host_bytes[0]),
        host_memory_bytes=hosts,
    )
    row = table.row(0)
    mesh = ", ".join(f"{axis} {row[axis]}" for axis in ("tp", "cp", "pp", "dp", "ep") if row[axis] > 1 or axis == "dp")
    offload = f", offload {OFFLOADS[row['offload']]}" if row["offload"] else ""
    plan = f"({mesh}, zero_stage {row['zero_stage']}, {RECOMPUTES[row['recompute']]} recompute{offload})"
    told: list[str] = []
    if "host" in need.short_of and hosts is not None:
        told.append(
            f"{need.host_bytes / _GIB:.1f} GiB of host memory per node for what it offloads, where a node of "
            f"{scenario.cluster.name} has {hosts / _GIB:.1f} GiB"
        )
    if "host" not in need.short_of or "device" in need.short_of:
        worst = int(total(full.memory)[0].argmax())
        state = sum(float(full.memory[name][0, worst]) for name in STATE_TERMS)
        capacity = scenario.cluster.accelerator.memory_bytes / _GIB
        told.append(
            f"{need.device_bytes / _GIB:.1f} GiB per device, {state / _GIB:.1f} GiB of it parameters, gradients and "
            f"optimizer; usable are {usable:.1f} of {capacity:.1f} GiB"
        )
    return f"the leanest plan {plan} needs {', and '.join(told)}"
