"""The one layout that a plan gets among equally fast ones: least recompute, most headroom, then the plainest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Bools, Ints, Num, num
from costmodel.facts import Facts
from costmodel.plan_costs import PlanCosts
from costmodel.plan_rows import Chunks
from costmodel.table import PlanTable
from planner.search.layouts.batch import Batch, Holdings
from planner.search.layouts.exact import ROUNDING, best_of, choice_of
from planner.search.layouts.fold import least_sum, shared_out
from planner.search.layouts.freedom import chooses_recompute
from planner.search.layouts.splits import Splits, splits_of
from planner.search.layouts.windows import most_layers, pipelines_of
from planner.search.request import SearchRequest

_ABOVE = 1.0 + 1e-9
_FINE = 1e-3
_SCALE = 1024.0 * 1024.0


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """Layers of every chunk, and how many of each device's layers run again."""

    chunks: Chunks
    recomputed: tuple[int, ...]


def arranged(request: SearchRequest, f: Facts, table: PlanTable, step_s: Num, usable: float) -> list[Arrangement]:
    """The layouts of plans whose layers are free, each of which takes no longer than a step time that it can reach."""
    limits = step_s * (1.0 + ROUNDING)
    most = most_layers(request, f, table, limits, usable)
    groups: list[Splits] = []
    plans: list[int] = []
    for pipeline, rows in pipelines_of(request, table):
        for row in rows.tolist():
            several = splits_of(pipeline, int(most[row]))
            groups += several
            plans += [row] * len(several)
    batch = Batch(table=table.take(np.array(plans)), holdings=Holdings(groups), of_row=np.arange(len(groups)))
    choice = choice_of(request, f, batch, limits[plans], usable)
    step, slowest, again = best_of(choice)
    # Of the ways in which leading dense layers fall, the best, and of equal ones the first.
    best: dict[int, int] = {}
    for place, row in enumerate(plans):
        if row not in best or step[place] < step[best[row]] * (1.0 - ROUNDING):
            best[row] = place
    chosen = np.array([best[row] for row in range(len(table))], dtype=np.int64)
    return _arranged(request, f, batch.take(chosen), choice.told[chosen], slowest[chosen], again[chosen], usable)


def _arranged(
    request: SearchRequest, f: Facts, batch: Batch, told: Ints, slowest_s: Num, again_s: Num, usable: float
) -> list[Arrangement]:
    """The layouts, for plans with the same choices at once.

    Holdings are looked at under every number of layers to run again, or under what the policy says.
    """
    free = chooses_recompute(request, batch.table["recompute"], batch.table["recompute_interval"])
    counts = np.where(free, [batch.groups[place].counts for place in batch.of_row], 1)
    row = np.repeat(np.arange(len(counts)), counts)
    number = np.concatenate([np.arange(count) for count in counts])
    several = batch.take(row)
    told = np.where(free[row, np.newaxis], np.minimum(number[:, np.newaxis], several.all_again), told[row])
    stages = several.stages(told)
    plans = PlanCosts.of(f, several.table)
    times, need = plans.times(stages), plans.device_bytes(stages)
    again = several.again_s(times, told) * free[row, np.newaxis]
    quick = times.ends_s <= slowest_s[row, np.newaxis] * (1.0 + ROUNDING)
    alike: dict[tuple[int, bool], list[int]] = {}
    for place, of in enumerate(batch.of_row.tolist()):
        alike.setdefault((id(batch.groups[of]), bool(free[place])), []).append(place)
    first = np.cumsum(counts) - counts
    found: dict[int, Arrangement] = {}
    for places in alike.values():
        splits = batch.groups[int(batch.of_row[places[0]])]
        at = first[places][:, np.newaxis] + np.arange(counts[places[0]])
        wide = slice(len(splits.device))
        group = _Headroom(
            splits=splits,
            most_again_s=again_s[places],
            told=told[at, wide],
            need=need[at, wide],
            again_s=again[at, wide],
            quick=quick[at, wide],
        )
        found |= dict(zip(places, group.arranged(usable), strict=True))
    return [found[place] for place in range(len(counts))]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Headroom:
    """Plans with the same holdings, ``(plans, numbers to run again, holdings)``.

    Attributes:
        need: bytes of a device.
        quick: whether the holding takes no longer than the slowest device may.
    """

    splits: Splits
    most_again_s: Num
    told: Ints
    need: Num
    again_s: Num
    quick: Bools

    def arranged(self, usable: float) -> list[Arrangement]:
        """The layouts with the most headroom of those that recompute no more than they have to."""
        of, plans = self.splits, np.arange(len(self.need))
        candidates = np.where(self.quick & (self.need <= usable), self.need, np.inf).reshape(len(plans), -1)
        candidates = np.sort(candidates, axis=1)
        low, high = np.zeros_like(plans), np.isfinite(candidates).sum(axis=1) - 1
        while (low < high).any():
            middle = (low + high) // 2
            again = least_sum(of, self._costs(candidates[plans, middle])[1])
            enough = again <= self.most_again_s * _ABOVE
            low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
        told, costs = self._costs(candidates[plans, high])
        found = []
        for plan, holdings in enumerate(shared_out(of, self._plainest(costs)).tolist()):
            own = told[plan]
            again_of = tuple(int(of.dense_again[at, own[at]] + of.moe_again[at, own[at]]) for at in holdings)
            found.append(Arrangement(chunks=tuple(of.chunks[at] for at in holdings), recomputed=again_of))
        return found

    def _costs(self, most_bytes: Num) -> tuple[Ints, Num]:
        """``(plans, holdings)`` fewest to run again, and seconds of these, where no holding may need more."""
        possible = self.quick & (self.need <= most_bytes[:, np.newaxis, np.newaxis])
        first = possible.argmax(axis=1)[:, np.newaxis, :]
        again = np.take_along_axis(self.again_s, first, axis=1)[:, 0, :]
        return np.take_along_axis(self.told, first, axis=1)[:, 0, :], np.where(possible.any(axis=1), again, np.inf)

    def _plainest(self, costs: Num) -> Num:
        """Whole numbers that put the seconds first, then the distance from even, then lighter ends."""
        of, pp = self.splits, self.splits.pipeline.pp
        total = num(of.dense_layers + of.moe_layers)
        # Of equal layers the last device gives up the first, then the first, then those between from the end.
        turn = num(np.where(of.device == of.pipeline.last, pp, np.where(of.device == 0, pp - 1, of.device - 1)))
        plain = total**2 * _SCALE + total * turn
        paid = np.where((costs > 0) & np.isfinite(costs), costs, np.inf).min(axis=1, keepdims=True)
        steps = np.round(costs / np.where(np.isfinite(paid), paid * _FINE, 1.0))
        return num(steps * (plain.max() * pp + 1.0) + plain)
