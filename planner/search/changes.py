"""Changes to a question that no plan answers, cheapest first: what may make it fit, not yet verified.

The order of cost: a wish of the user's given up; the hosts' memory used; more devices; a number format; then what
changes the training itself: moments in fewer bits, another batch, shorter sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import floor
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.facts import Facts
from costmodel.predict import predict_stages
from costmodel.scenario import Scenario
from costmodel.table import mesh_size, stage_table
from planner.search.allowed import allowed_options
from planner.search.change import Change, has_a_plan
from planner.search.changes_of_work import about_batch, fewer_moments, other_batch, other_precision, shorter
from planner.search.conflict import Conflict
from planner.search.eliminate import MEMORY
from planner.search.lifts import Late, Lift
from planner.search.request import SearchRequest
from planner.search.wishes import MIN_FREE, MIN_USED, Wish, without

PRECISION_RULE = "precision_in_hardware"
DEVICES = "devices"

_GIB = 2**30
_MOST_LIFTS = 3
_MOST_DOUBLINGS = 6
_MOST_PROBES = 12


def changes_for(request: SearchRequest, conflict: Conflict, facts: Facts, late: Late) -> Iterator[Change]:
    """Changes that may help, cheapest first; made as they are asked for, as some take a search of their own."""
    short = MEMORY in conflict.rules
    yield from _lifts(request, conflict, facts)
    if short:
        yield from _offload(request)
    if PRECISION_RULE in conflict.rules:
        yield from other_precision(request)
    if short or DEVICES in conflict.rules:
        yield from _more_devices(request, late)
    if short:
        yield from fewer_moments(request)
    if about_batch(request, conflict):
        yield from other_batch(request, late)
    if short:
        yield from shorter(request, late)


# -- wishes ---------------------------------------------------------------------------------------------------------


def _lifts(request: SearchRequest, conflict: Conflict, facts: Facts) -> Iterator[Change]:
    wishes = {wish.name: wish for wish in conflict.all_wishes}
    for lift in conflict.lifts[:_MOST_LIFTS]:
        lifted = [wishes[name] for name in wishes if name in lift.wishes]
        lower = _lower_free_memory(request, conflict, facts) if [wish.kind for wish in lifted] == [MIN_FREE] else None
        yield lower or _lifted(request, lift, lifted)


def _lifted(request: SearchRequest, lift: Lift, lifted: list[Wish]) -> Change:
    """Without the pins and forbids, and with the free memory and the share of devices that are left."""
    left, flags, told = without(request, lifted), list[str](), list[str]()
    kinds = {wish.kind for wish in lifted}
    fields: dict[str, Any] = {}
    cost = "no more devices, the same training"
    leave_out = [wish.flag for wish in lifted if wish.kind != MIN_USED]
    if leave_out:
        told.append(f"leave out {' and '.join(leave_out)}")
    if "pin" in kinds:
        fields["pins"] = [pin.text for pin in left.constraints.pins]
    if "forbid" in kinds:
        fields["forbids"] = [ban.text for ban in left.constraints.forbids]
    if MIN_FREE in kinds:
        fields["min_free_gib"] = None
    if MIN_USED in kinds:
        devices, used = request.scenario.devices, mesh_size(lift.mesh)
        if request.min_devices is not None:
            left = replace(left, min_devices=used)
            flags.append(f"--devices {used}..{devices}")
            fields["min_devices"] = used
        else:
            share = floor(1e4 * used / devices) / 1e4
            left = replace(left, min_used=share)
            flags.append(f"--{MIN_USED} {share:g}")
            fields["min_used"] = share
        told.append(f"use {used} of the {devices} devices")
        cost = f"{devices - used} devices stay idle, the same training"
    return Change(
        told=" and ".join(told),
        request=left,
        flags=tuple(flags),
        leave_out=tuple(leave_out),
        lifted=lift.wishes,
        fields=fields,
        cost=cost,
    )


def _lower_free_memory(request: SearchRequest, conflict: Conflict, facts: Facts) -> Change | None:
    """As much free memory as the leanest plan leaves."""
    if conflict.leanest is None:
        return None
    table = conflict.leanest
    full = predict_stages(facts, table, stage_table(request.scenario, table, every_stage=True))
    left = request.scenario.cluster.accelerator.memory_bytes - float(full.peak_bytes[0])
    gib = floor(10 * left / _GIB) / 10
    if gib <= 0:
        return None
    scenario = request.scenario.model_copy(update={"min_free_bytes": int(gib * _GIB)})
    return Change(
        told=f"keep {gib:g} GiB free instead of {(request.scenario.min_free_bytes or 0) / _GIB:g}",
        request=replace(request, scenario=scenario),
        flags=(f"--min-free-gib {gib:g}",),
        fields={"min_free_gib": gib},
        lifted=frozenset(wish.name for wish in conflict.all_wishes if wish.kind == MIN_FREE),
        cost="no more devices, the same training",
    )


# -- memory and devices ---------------------------------------------------------------------------------------------


def _offload(request: SearchRequest) -> Iterator[Change]:
    if request.also or request.constraints.touches("offload"):
        return
    try:
        also = allowed_options(request.scenario.framework, ("offload",))
    except InvalidInput:
        return
    yield Change(
        told="allow offload to the hosts",
        request=replace(request, also=also),
        flags=("--allow offload",),
        fields={"allow": ["offload"]},
        cost="memory of the hosts, no more devices, the same training",
    )


def _more_devices(request: SearchRequest, late: Late) -> Iterator[Change]:
    """The fewest that fit, whole nodes beyond the first: by doubling, then by bisection."""
    scenario = request.scenario
    node = scenario.cluster.devices_per_node
    unit = node if scenario.devices >= node else 1

    def enough(count: int) -> bool:
        try:
            return has_a_plan(_with_devices(request, count * unit), late)
        except InvalidInput:
            return False

    low, probes = scenario.devices // unit, 0
    high = 2 * low
    if unit == 1 and high > node:
        low, high, unit = 0, 1, node  # the next after single devices is a whole node
    while not enough(high):
        low, high, probes = high, 2 * high, probes + 1
        if probes > _MOST_DOUBLINGS or late() or not _exists(scenario, high * unit):
            return
    while high - low > 1 and probes < _MOST_PROBES and not late():
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
        probes += 1
    count = high * unit
    more = count - scenario.devices
    yield Change(
        told=f"use {count} devices instead of {scenario.devices}",
        request=_with_devices(request, count),
        flags=(f"--devices {count}" if request.min_devices is None else f"--devices {request.min_devices}..{count}",),
        fields={"devices": count},
        cost=f"{more} more device{'s' if more > 1 else ''}, the same training",
    )


def _exists(scenario: Scenario, devices: int) -> bool:
    try:
        scenario.cluster.check_devices(devices)
    except InvalidInput:
        return False
    return True


def _with_devices(request: SearchRequest, devices: int) -> SearchRequest:
    request.scenario.cluster.check_devices(devices)
    return replace(request, scenario=request.scenario.model_copy(update={"devices": devices}))
