"""A user's wishes in a conflict, in words: what each asks, and what would do without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.errors import InvalidInput
from planner.search.choices import policies
from planner.search.conflict import Conflict
from planner.search.constraints import Contradiction
from planner.search.lifts import Lift
from planner.search.request import SearchRequest
from planner.search.rule_words import no_product
from planner.search.space import domains, legal_zero_stages, mesh_candidates, offered_cp_comm, stage_options
from planner.search.wishes import MIN_FREE, MIN_USED, Wish, keeping, without_free_memory

Json = dict[str, Any]

_GIB = 2**30
_MESH = ("tp", "cp", "pp", "dp", "ep", "etp")


def wish_reason(request: SearchRequest, wish: Wish, conflict: Conflict, plans: Mapping[frozenset[str], Json]) -> str:
    """What the wish asks where that takes numbers, and which plan or mesh would do without it."""
    alone = contradiction(keeping(request, [wish]))
    if alone is not None:
        return alone.expected
    joint = contradiction(keeping(request, conflict.wishes)) if wish == conflict.wishes[0] else None
    said = f"together: {joint.expected.partition(';')[0]}; " if joint is not None else ""
    if wish.kind == MIN_FREE:
        usable = without_free_memory(request).scenario.usable_bytes
        said = f"{request.scenario.usable_bytes / _GIB:.1f} GiB usable, not {usable / _GIB:.1f}; "
    if wish.kind == MIN_USED:
        said = f"at least {request.least_devices} of {request.scenario.devices} devices in use; "
    lift = _lift_of(wish, conflict)
    if lift is None:
        return said + "it is one of those that can not be heeded together"
    others = sorted(lift.wishes - {wish.name})
    also = f" and without {', '.join(others)}" if others else ""
    return f"{said}without it{also}, {mesh_in_words(plans.get(lift.wishes, lift.mesh))} would do"


def _lift_of(wish: Wish, conflict: Conflict) -> Lift | None:
    """The smallest lift in which of the conflict's wishes there is this one only."""
    named = {other.name for other in conflict.wishes}
    return next((lift for lift in conflict.lifts if lift.wishes & named == {wish.name}), None)


def mesh_in_words(mesh: Mapping[str, Any]) -> str:
    """``tp 2, pp 4, dp 8``."""
    return ", ".join(f"{axis} {mesh[axis]}" for axis in _MESH if mesh[axis] > 1 or axis == "dp")


def contradiction(request: SearchRequest) -> Contradiction | None:
    """What pins and forbids leave no value of; None where they leave something of everything."""
    try:
        mesh_candidates(request)
        policies(request)
        legal_zero_stages(request)
        offered_cp_comm(request)
        stage_options(request, 2)
    except Contradiction as error:
        return error
    except InvalidInput:
        return None  # too many meshes: there is no lack of any
    return None


def beyond_devices(request: SearchRequest, conflict: Conflict) -> str | None:
    """Why no mesh of the wished degrees has a number of devices that may be used; None where wishes leave no degree."""
    if not any(wish.condition is not None and not wish.inner for wish in conflict.wishes):
        return None
    try:
        of_axes = domains(request)
    except Contradiction:
        return None
    most = request.scenario.devices
    dp = min((value for pin in request.constraints.pins if pin.axis == "dp" for value in pin.values), default=1)
    degrees = {"tp": min(of_axes.tp), "cp": min(of_axes.cp), "pp": min(of_axes.pp), "dp": dp}
    product = int(np.prod(list(degrees.values())))
    if product > most:
        shown = " * ".join(f"{axis} {value}" for axis, value in degrees.items() if value > 1)
        return f"{shown} = {product} devices at least, where there are {most}"
    return no_product(request)
