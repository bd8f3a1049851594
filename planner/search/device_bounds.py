"""What the device with the most layers takes at least, over all ways to lay layers out and to run some of them again.

With ``state`` and ``kept`` bytes of a layer and ``a`` micro-batches alive, a device has room for
``n0 = (usable - const) / (state + a kept)`` layers as they are. Each further layer makes room by running
``(state + a kept) / (a (kept - least))`` layers again, where ``least`` is what these keep, and so takes longer. So in
``t`` seconds a device has at most so many layers, a whole number of them, and the least ``t`` is where those of all
devices make up the model. Only layers of the model's main kind are counted: the others only add to both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from costmodel.arrays import Bools, Ints, Num, num
from costmodel.scenario import Scenario
from costmodel.schedules import chunks_alive, chunks_held, placement_of
from costmodel.spec.plan import SCHEDULES
from costmodel.stages import Placement
from costmodel.table import layer_counts

_STEPS, _FIRST_STEP, _GROWTH = 14, 0.015, 1.3
_CELLS = 400_000
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class RowBound:
    """Per row (a mesh with what it recomputes and shards): seconds and bytes for one micro-batch.

    Attributes:
        body_s, ends_s: seconds of one micro-batch in all layers and at both ends, of plans that choose how many layers
            run again without these.
        layer_s: in one layer of the kind that fills most of the model; ``again_s``: what it takes more when it runs
            again, 0 where that is no choice.
        end_s: once a step, on a device with an even share of the layers, beyond what its micro-batches take.
        const_bytes: what a stage needs whatever layers it holds; ``workspace_bytes``: once some of them run again.
        state_bytes, kept_bytes: of one layer of that kind; ``least_kept_bytes``: of one that runs again.
    """

    body_s: Num
    ends_s: Num
    layer_s: Num
    again_s: Num
    end_s: Num
    const_bytes: Num
    workspace_bytes: Num
    state_bytes: Num
    kept_bytes: Num
    least_kept_bytes: Num

    @classmethod
    def of_memory(cls, memory: Mapping[str, Num]) -> RowBound:
        """Bounds of memory alone."""
        nothing = np.zeros_like(memory["const_bytes"])
        return cls(body_s=nothing, ends_s=nothing, layer_s=nothing, again_s=nothing, end_s=nothing, **memory)

    def take(self, rows: Ints) -> RowBound:
        """The chosen rows."""
        return RowBound(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


@dataclass(frozen=True, kw_only=True)
class StageBound:
    """One (vpp, schedule) of a pipeline depth.

    Attributes:
        waiting: in units of a device's work for one micro-batch.
        layers: of the kind that fills most of the model.
    """

    pp: int
    vpp: int
    schedule: int
    waiting: float
    layers: int

    @property
    def copies(self) -> int:
        """How often each layer is held: both ways, by two devices, each for half of the micro-batches."""
        return 2 if placement_of(SCHEDULES[self.schedule]) == Placement.BOTH_WAYS else 1

    @property
    def share(self) -> float:
        """Layers of the device with the most, at least, for every pipeline that runs on it."""
        return -(-self.layers * self.copies // self.pp) / self.copies

    def alive(self, m: int) -> Num:
        """Micro-batches whose activations a layer keeps, by device."""
        return _alive(self.pp, self.vpp, self.schedule, min(m, 2 * self.pp))


@lru_cache(maxsize=65536)
def _alive(pp: int, vpp: int, schedule: int, m: int) -> Num:
    code, index = np.full(pp, schedule), np.arange(pp, dtype=np.float64)
    chunks = chunks_held(np.array(schedule), num(vpp))
    return chunks_alive(code, num(pp), num(vpp), num(m), index) / chunks


def layers_in_question(scenario: Scenario) -> int:
    """Layers of the kind that fills most of the model: those with experts where it has any."""
    layers, dense = layer_counts(scenario)
    others = len(dense) if isinstance(dense, tuple) else dense
    return layers if others == layers else layers - others


def fits(bounds: Sequence[StageBound], m: Ints, rows: RowBound, usable: float | Num) -> Bools:
    """Whether all layers may fit into ``usable`` bytes a device with any of these stage options of one depth."""
    no_time = np.zeros_like(rows.const_bytes)
    untimed = replace(rows, layer_s=no_time + 1.0, again_s=no_time)
    lean = _leanest(tuple(bounds), int(m.max(initial=1)))
    return np.asarray(np.isfinite(slowest_layers_s(lean, m, untimed, usable, least_s=False)[0]).any(axis=0))


@lru_cache(maxsize=65536)
def _leanest(bounds: tuple[StageBound, ...], most: int) -> tuple[StageBound, ...]:
    """Those of the options of one depth that keep the least, on some device for some number of micro-batches."""
    counts = range(1, min(most, 2 * bounds[0].pp) + 1)
    alive = [np.stack([bound.alive(m) for m in counts]) for bound in bounds]
    found: list[int] = []
    for place, bound in enumerate(bounds):
        others = (at for at in found if bounds[at].copies == bound.copies)
        if not any((alive[at] <= alive[place]).all() for at in others):
            found.append(place)
    return tuple(bounds[place] for place in found)


def slowest_layers_s(
    bounds: Sequence[StageBound], m: Ints, rows: RowBound, usable: float | Num | None, *, least_s: bool = True
) -> tuple[Num, Num]:
    """Seconds of one micro-batch, at least: in the layers of the slowest device, and in what runs again on all devices.

    The first is infinite where the layers don't fit into ``usable`` bytes a device.

    Args:
        bounds: of one pipeline depth.
        least_s: whether seconds are wanted beyond those of the even share where memory leaves less room.

    Returns:
        Both as ``(bounds, rows)``.
    """
    pp = bounds[0].pp
    copies = np.array([bound.copies for bound in bounds])
    held = np.array([bound.layers for bound in bounds]) * copies
    even = -(-held // pp)
    slowest = num(even)[:, np.newaxis] * rows.layer_s
    again = np.zeros_like(slowest)
    if usable is not None:
        room = usable * (1.0 + _ROUNDING) - rows.const_bytes
        distinct, inverse = np.unique(np.minimum(m, 2 * pp), return_inverse=True)
        alive = np.array([[bound.alive(int(value)) for value in distinct] for bound in bounds])
        alive = alive.reshape(len(bounds), len(distinct), pp)
        most = alive.max(axis=2)[:, inverse]
        # Where even the fullest device takes its share of the layers as they are, memory decides nothing.
        short = room < even[:, np.newaxis] * (rows.state_bytes + most * rows.kept_bytes)
        # Where the emptiest device has not room enough for its share, they don't fit.
        least = alive.min(axis=2)[:, inverse]
        with np.errstate(divide="ignore", invalid="ignore"):
            room_again = (room - rows.workspace_bytes) / (rows.state_bytes + least * rows.least_kept_bytes)
            held_there = np.maximum(room / (rows.state_bytes + least * rows.kept_bytes), room_again)
        hopeless = short & (np.floor(held_there + _ROUNDING) * pp < held[:, np.newaxis])
        slowest[hopeless] = np.inf
        which, row = np.nonzero(short & ~hopeless)
        for part in np.array_split(np.arange(len(row)), max(1, -(-len(row) * pp // _CELLS))):
            option, at = which[part], row[part]
            if len(part):
                own = rows.take(at), room[at], _STEPS if least_s else 0
                found = _under_memory(held[option], even[option], alive[option, inverse[at]], *own)
                slowest[option, at], again[option, at] = found
    return slowest / copies[:, np.newaxis], again / copies[:, np.newaxis]


def _under_memory(held: Ints, even: Ints, alive: Num, rows: RowBound, room: Num, steps: int) -> tuple[Num, Num]:
    """The same where memory may decide; ``alive`` is ``(rows, devices)``."""

    def column(values: Num) -> Num:
        return values[:, np.newaxis]

    layer, state, kept, least = map(column, (rows.layer_s, rows.state_bytes, rows.kept_bytes, rows.least_kept_bytes))
    of_layer = state + alive * kept
    as_they_are = np.maximum(column(room) / of_layer, 0.0)
    spared = alive * (kept - least)
    again_each = np.divide(of_layer, spared, out=np.full(of_layer.shape, np.inf), where=spared > 0)
    with_again = (column(room - rows.workspace_bytes)) / (state + alive * least)
    most = np.floor(np.maximum(as_they_are, with_again) + _ROUNDING)
    possible = most.sum(axis=1) >= held
    slowest, again = np.full(len(room), np.inf), np.zeros(len(room))
    at = np.flatnonzero(possible)
    if not len(at):
        return slowest, again
    as_they_are, again_each, most, layer = as_they_are[at], again_each[at], most[at], layer[at]
    held, even = held[at], even[at]
    # Seconds that a layer takes beyond those that fit as they are, with what runs again for its sake.
    with np.errstate(invalid="ignore"):
        extra = np.where(np.isfinite(again_each), again_each * column(rows.again_s[at]), np.inf)
    further = np.where(column(rows.again_s[at]) > 0, layer + extra, layer)

    # From the even share upwards, in steps that grow: the last at which the layers are too many is a bound.
    seconds, going = even * layer[:, 0], np.arange(len(at))
    slowest[at] = seconds
    for step in range(steps):
        beyond = (column(seconds[going]) - as_they_are[going] * layer[going]) / further[going]
        count = np.where(beyond > 0, as_they_are[going] + beyond, column(seconds[going]) / layer[going])
        held_then = np.minimum(np.floor(count + _ROUNDING), most[going]).sum(axis=1)
        going = going[held_then < held[going]]
        if not len(going):
            break
        slowest[at[going]] = seconds[going]
        seconds[going] *= 1.0 + _FIRST_STEP * _GROWTH**step
    left = np.maximum(held - as_they_are.sum(axis=1), 0.0)
    fewest = np.where(left > 0, again_each.min(axis=1), 0.0)
    again[at] = np.where(left > 0, left * np.where(np.isfinite(fewest), fewest, 0.0), 0.0) * rows.again_s[at]
    return slowest, again
