"""What a user asks of the plans beside the scenario: pins, forbids, free memory, the share of devices in use.

Each is a *wish* with the words in which it was given. A request whose wishes are lifted searches their listed values
too, so that a plan that heeds a wish can be told from one that doesn't.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from costmodel.arrays import Bools
from costmodel.errors import InvalidInput
from costmodel.table import mesh_size
from planner.search.constraints import Condition, Constraints
from planner.search.request import SearchRequest
from planner.search.space import MESH_AXES, Columns, mesh_candidates

MIN_FREE = "min-free-gib"
MIN_USED = "min-used"

_GIB = 2**30
_ON_MESHES = (*MESH_AXES, "devices_used")
_MOST_WITH_FEWER_DEVICES = 30_000
"""Meshes of fewer devices than are wanted are looked at where they are no more than this; else the share is no wish."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """One constraint of the user's.

    Attributes:
        name: in his words, ``pin tp=8`` or ``min-free-gib 20``.
        flag: as on a command line.
        kind: ``pin``, ``forbid``, ``min-free-gib`` or ``min-used``.
        condition: of a pin or a forbid.
    """

    name: str
    flag: str
    kind: str
    condition: Condition | None = None

    @property
    def inner(self) -> bool:
        """Whether it is about what varies inside one mesh."""
        return self.condition is not None and self.condition.axis not in _ON_MESHES

    def heeded_by(self, meshes: Columns) -> Bools:
        """The meshes that heed it; for pins and forbids on mesh axes."""
        condition = self.condition
        assert condition is not None
        column = mesh_size(meshes) if condition.axis == "devices_used" else meshes[condition.axis]
        values = np.unique(column)
        named = np.isin(column, [value for value in values.tolist() if condition.names(value)])
        return named if self.kind == "pin" else ~named


@dataclass(frozen=True, kw_only=True)
class Lifted(Constraints):
    """Constraints of which some are lifted; the values that lifted pins list are searched beside the default ones."""

    listed: tuple[tuple[str, int], ...] = ()

    def domain(self, axis: str, default: Iterable[int]) -> tuple[int, ...]:
        """As of any constraints, with the listed values."""
        return super().domain(axis, (*default, *(value for name, value in self.listed if name == axis)))


def wishes_of(request: SearchRequest) -> tuple[Wish, ...]:
    """The wishes of a request, each once."""
    constraints, scenario = request.constraints, request.scenario
    found = [
        Wish(name=f"{kind} {one.text.strip()}", flag=f"--{kind} {one.text.strip()}", kind=kind, condition=one)
        for kind, conditions in (("pin", constraints.pins), ("forbid", constraints.forbids))
        for one in conditions
    ]
    free = scenario.min_free_bytes
    if free and scenario.usable_bytes < without_free_memory(request).scenario.usable_bytes:
        words = f"{MIN_FREE} {free / _GIB:g}"
        found.append(Wish(name=words, flag=f"--{words}", kind=MIN_FREE))
    if request.least_devices > 1:
        span = request.min_devices is not None
        words = f"devices {request.min_devices}..{scenario.devices}" if span else f"{MIN_USED} {request.min_used:g}"
        found.append(Wish(name=words, flag=f"--{words}", kind=MIN_USED))
    return tuple({wish.name: wish for wish in found}.values())


def without(request: SearchRequest, lifted: Collection[Wish]) -> SearchRequest:
    """The request as if these wishes had not been given."""
    conditions = [wish.condition for wish in lifted if wish.condition is not None]
    request = replace(request, constraints=request.constraints.without(conditions))
    kinds = {wish.kind for wish in lifted}
    if MIN_FREE in kinds:
        request = without_free_memory(request)
    return with_any_devices(request) if MIN_USED in kinds else request


def without_free_memory(request: SearchRequest) -> SearchRequest:
    """The request with what the calibration leaves free, and no more."""
    return replace(request, scenario=request.scenario.model_copy(update={"min_free_bytes": None}))


def with_any_devices(request: SearchRequest) -> SearchRequest:
    """The request with plans of any number of devices."""
    return replace(request, min_used=min(request.min_used, 1.0 / request.scenario.devices), min_devices=None)


def keeping(request: SearchRequest, kept: Collection[Wish]) -> SearchRequest:
    """The request with the pins and forbids of ``kept`` alone, and the values that the others list searched too."""
    pins = tuple(wish.condition for wish in kept if wish.kind == "pin" and wish.condition is not None)
    forbids = tuple(wish.condition for wish in kept if wish.kind == "forbid" and wish.condition is not None)
    listed = tuple(
        (pin.axis, value)
        for pin in request.constraints.pins
        if pin.axis in _ON_MESHES and pin not in pins
        for value in sorted(pin.values)
    )
    return replace(request, constraints=Lifted(pins=pins, forbids=forbids, listed=listed))


def every_mesh(request: SearchRequest, wishes: Collection[Wish]) -> tuple[Columns, dict[str, Bools]]:
    """Every mesh of the space as if nothing were wished, and for each wish about meshes which of them heed it.

    Raises:
        InvalidInput: there are too many meshes.
    """
    free = keeping(request, ())
    meshes = mesh_candidates(free)
    heeded: dict[str, Bools] = {}
    for wish in wishes:
        if wish.kind == MIN_USED:
            fewer = _with_fewer_devices(request, free)
            enough = np.repeat([True, False], [len(meshes["tp"]), len(fewer["tp"])])
            meshes = {axis: np.concatenate([column, fewer[axis]]) for axis, column in meshes.items()}
            heeded[wish.name] = enough
    usual = (meshes["etp"] == 1) | (meshes["etp"] == meshes["tp"])
    listed = [value for axis, value in _listed(free) if axis == "etp"]
    kept = usual | np.isin(meshes["etp"], listed)
    meshes = {axis: column[kept] for axis, column in meshes.items()}
    heeded = {name: mask[kept] for name, mask in heeded.items()}
    for wish in wishes:
        if wish.condition is not None and not wish.inner:
            heeded[wish.name] = wish.heeded_by(meshes)
    return meshes, heeded


def _listed(request: SearchRequest) -> tuple[tuple[str, int], ...]:
    return request.constraints.listed if isinstance(request.constraints, Lifted) else ()


def _with_fewer_devices(request: SearchRequest, free: SearchRequest) -> Columns:
    """Meshes of fewer devices than the request wants; none where they are too many to look at."""
    try:
        meshes = mesh_candidates(with_any_devices(free))
    except InvalidInput:
        meshes = {axis: np.zeros(0, dtype=np.int64) for axis in MESH_AXES}
    few = mesh_size(meshes) < request.least_devices
    if few.sum() > _MOST_WITH_FEWER_DEVICES:
        few[:] = False
    return {axis: column[few] for axis, column in meshes.items()}
