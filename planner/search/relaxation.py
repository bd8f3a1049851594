"""Least objectives of meshes under each policy, the least first, each worked out no sooner than it is asked for.

Two relaxations, one above the other. The *quick* one leaves memory out: seconds of one micro-batch follow from few
axes, so they are worked out once for meshes that agree in these, and all pairs of a policy and a mesh are bounded. The
*full* one adds what memory allows: time as if little were sharded, memory as if all were. It costs far more, and is
never lower, so it is worked out in the order of the quick one, only as far as somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Ints, Num, distinct, num
from costmodel.expert_overlap import overlapped_share, paired_share
from costmodel.facts import Facts
from costmodel.table import mesh_size
from costmodel.terms.host import HOST
from costmodel.terms.term import Axes
from planner.search.bounds import leanest_stages, memory_bounds, row_table, times_however_sharded, with_inner
from planner.search.choices import policies, policy_columns
from planner.search.device_bounds import RowBound
from planner.search.objective import Objective
from planner.search.request import SearchRequest
from planner.search.space import POLICY_AXES, Columns, legal_zero_stages
from planner.search.stage_steps import least_step_time, stage_bounds

PAIRS_AT_ONCE = 1000
_MESHES_IN_A_BLOCK = 50_000
_PAIRS_WHEN_LATE = 20_000
_ROUNDING = 1e-12
_TIMES = ("body_s", "ends_s", "layer_s", "again_s", "end_s")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Times:
    """Seconds of one micro-batch of every policy and mesh.

    Attributes:
        of_mesh: place among the distinct meshes; columns of ``_TIMES`` are ``(policies, distinct meshes)``.
        alone: where no exchange of experts hides under another micro-batch.
        spared: how much less it is where all of them do; nothing where a plan hides none.
        paired: ``(meshes,)``; the share of the micro-batches that can.
    """

    of_mesh: Ints
    alone: dict[str, Num]
    spared: dict[str, Num]
    paired: Num

    @classmethod
    def of(cls, request: SearchRequest, f: Facts, meshes: Columns) -> _Times:
        """Worked out for one of the meshes that agree in what times depend on."""
        host = HOST.evaluate(f, Axes({axis: num(meshes[axis]) for axis in HOST.axes}))["host_layer_s"]
        _, floor = np.unique(np.broadcast_to(host, meshes["tp"].shape), return_inverse=True)
        first, of_mesh = distinct([*(meshes[axis] for axis in ("tp", "cp", "ep", "etp", "micro_batch_size")), floor])
        place, at = (index.ravel() for index in np.indices((len(policies(request)), len(first))))
        zero = min((1, *legal_zero_stages(request)))
        some = {axis: column[first[at]] for axis, column in meshes.items()}
        rows = with_inner(some, policy=policy_columns(request, place), zero_stage=zero)
        # No more than one micro-batch of many is without another beside it.
        endless = rows | {"num_microbatches": np.full(len(at), np.iinfo(np.int64).max)}
        schedules = request.scenario.framework.schedules
        hides = overlapped_share(row_table(request, endless), schedules=schedules) > 0
        alone = times_however_sharded(request, f, rows, 0.0)
        spared = {name: np.zeros(len(at)) for name in _TIMES}
        if hides.any():
            hiding = times_however_sharded(request, f, {axis: column[hides] for axis, column in rows.items()}, 1.0)
            for name in _TIMES:
                spared[name][hides] = alone[name][hides] - hiding[name]
        shape = len(policies(request)), len(first)
        return cls(
            of_mesh=of_mesh,
            alone={name: column.reshape(shape) for name, column in alone.items()},
            spared={name: column.reshape(shape) for name, column in spared.items()},
            paired=paired_share(num(meshes["pp"]), num(1.0), num(meshes["num_microbatches"])),
        )

    def take(self, policy: Ints, mesh: Ints) -> dict[str, Num]:
        """The columns of ``_TIMES`` of pairs."""
        at = policy, self.of_mesh[mesh]
        hidden = self.paired[mesh]
        # The least over several exchanges of keys and values is concave in what is hidden, so this is no higher.
        return {name: np.maximum(self.alone[name][at] - hidden * self.spared[name][at], 0.0) for name in _TIMES}


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Some pairs, the least bound first.

    Attributes:
        policy: places among ``choices.policies``; ``mesh``: among the meshes.
        least: their bounds; ``later``: of all pairs of later parts.
    """

    policy: Ints
    mesh: Ints
    least: Num
    later: float

    def begins_with(self, other: Part) -> bool:
        """Whether the pairs of another are the first of these."""
        count = len(other.mesh)
        return np.array_equal(self.mesh[:count], other.mesh) and np.array_equal(self.policy[:count], other.policy)


class Relaxation:
    """Bounds of the objective of all pairs of a policy and a mesh.

    Args:
        late: whether time is over.

    Attributes:
        complete: whether there was time to look at all that was asked for; else some pairs are left out.
    """

    def __init__(
        self,
        request: SearchRequest,
        f: Facts,
        objective: Objective,
        usable: float,
        meshes: Columns,
        late: Callable[[], bool],
    ) -> None:
        self._request, self._f, self._objective, self._usable, self._meshes = request, f, objective, usable, meshes
        self._late, self.complete = late, True
        self._count = len(meshes["tp"])
        self._times = _Times.of(request, f, meshes)
        self._stages = _stages_by_depth(request, int(meshes["pp"].max(initial=1)))
        quick = np.full((len(policies(request)), self._count), np.inf)
        # Most devices and smallest micro-batches first, so that a deadline leaves the likeliest ones bounded.
        order = np.lexsort((-mesh_size(meshes), meshes["micro_batch_size"]))
        for start in range(0, len(order), _MESHES_IN_A_BLOCK):
            if start and late():
                self.complete = False
                break
            block = order[start : start + _MESHES_IN_A_BLOCK]
            for place in range(len(quick)):
                quick[place, block] = self._quick(place, block)
        flat = quick.ravel()
        self._order = np.argsort(flat, kind="stable")
        self._by_quick = flat[self._order]
        self._order = self._order[: int(np.isfinite(self._by_quick).sum())]
        self._looked_at = 0
        # Pairs that may fit with their full bound, in its order, of those that were looked at.
        self._pairs: Ints = np.zeros(0, dtype=np.int64)
        self._values: Num = np.zeros(0)

    def least(self) -> float:
        """The least bound of all; infinite where nothing fits."""
        self._settle(1, np.inf)
        return float(self._values[0]) if len(self._values) else float("inf")

    def parts(self, most: Callable[[], float] = lambda: np.inf) -> Iterator[Part]:
        """Pairs that may fit, the least bound first.

        Args:
            most: asked before every part: no bound that is looked for lies above.
        """
        start = 0
        while True:
            limit = most()
            known = self._settle(start + PAIRS_AT_ONCE + 1, limit)
            end = min(start + PAIRS_AT_ONCE, int(np.searchsorted(self._values[:known], limit, side="right")))
            if end <= start:
                return
            policy, mesh = np.divmod(self._pairs[start:end], self._count)
            later = min(float(self._values[end]) if end < known else np.inf, self._unseen)
            yield Part(policy=policy, mesh=mesh, least=self._values[start:end], later=later)
            start = end

    @property
    def _unseen(self) -> float:
        """No pair that was not looked at lies below."""
        return float(self._by_quick[self._looked_at]) if self._looked_at < len(self._order) else float("inf")

    def _settle(self, count: int, limit: float) -> int:
        """Look at pairs until the first ``count`` of all are known, or all up to ``limit``; how many then are."""
        while True:
            unseen = self._unseen * (1.0 - _ROUNDING)
            known = int(np.searchsorted(self._values, unseen))
            if known >= count or unseen > limit or not np.isfinite(unseen):
                return known
            if self._late() and (len(self._values) or self._looked_at >= _PAIRS_WHEN_LATE):
                self.complete = False
                return len(self._values)
            self._look_at_more()

    def _look_at_more(self) -> None:
        size = max(2 * PAIRS_AT_ONCE, self._looked_at // 2)
        some = self._order[self._looked_at : self._looked_at + size]
        self._looked_at += len(some)
        values = self._full(*np.divmod(some, self._count))
        fit = np.isfinite(values)
        pairs, values = np.concatenate([self._pairs, some[fit]]), np.concatenate([self._values, values[fit]])
        order = np.lexsort((pairs, values))
        self._pairs, self._values = pairs[order], values[order]

    def _quick(self, place: int, mesh: Ints) -> Num:
        """Bounds of one policy that leave memory out: of the stage options that tell devices alike, the least."""
        f, pp = self._f, self._meshes["pp"][mesh]
        m, depth = num(self._meshes["num_microbatches"][mesh]), num(pp)
        times = self._times.take(np.full(len(mesh), place), mesh)
        whole = times["body_s"] + times["ends_s"]
        least = np.full(len(mesh), np.inf)
        for waiting_of, share_of in self._stages:
            waiting = waiting_of[pp]
            mean = (m + waiting) * whole / depth
            slowest = m * (share_of[pp] * times["layer_s"]) + waiting / depth * times["body_s"]
            host = (m + waiting) * f.cal.fixed_microbatch_s + f.cal.fixed_step_s
            least = np.minimum(least, (np.maximum(mean, slowest) + host) * f.cal.time_level)
        return self._objective.of_rows(least, self._rows(mesh, ("tp", "cp", "dp", "pp")))

    def _full(self, policy: Ints, mesh: Ints) -> Num:
        """Bounds of pairs with what memory allows; infinite for what can't fit."""
        request, f, meshes = self._request, self._f, self._rows(mesh, tuple(self._meshes))
        times, chosen = self._times.take(policy, mesh), policy_columns(request, policy)
        # How they are sharded is open.
        decided = meshes | dict(zip(POLICY_AXES, chosen, strict=True))
        least = np.full(len(mesh), np.inf)
        for zero in leanest_stages(request):
            lean = memory_bounds(request, f, with_inner(meshes, policy=chosen, zero_stage=zero))
            rows = RowBound(**times, **lean)
            least = np.minimum(least, least_step_time(request, f, decided, rows, self._usable, least_s=False))
        return self._objective.of_rows(least, meshes)

    def _rows(self, mesh: Ints, axes: tuple[str, ...]) -> Columns:
        return {axis: self._meshes[axis][mesh] for axis in axes}


def _stages_by_depth(request: SearchRequest, deepest: int) -> list[tuple[Num, Num]]:
    """By pipeline depth the least waiting and the even share of layers, of each way to lay stages over devices.

    Waiting is infinite where a depth has no stage option.
    """
    found: dict[int, tuple[Num, Num]] = {}
    for pp in range(1, deepest + 1):
        for bound in stage_bounds(request, pp):
            endless = np.full(deepest + 1, np.inf), np.ones(deepest + 1)
            waiting, share = found.setdefault(bound.copies, endless)
            waiting[pp] = min(waiting[pp], bound.waiting)
            share[pp] = -(-bound.layers * bound.copies // pp) / bound.copies
    return list(found.values())
