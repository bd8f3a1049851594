"""The best layers of every device and the best numbers of them that run again, for many plans at once.

The step takes ``max_d E_d + waiting + fixed``. ``E_d`` and the memory of a device follow from what it holds, and
waiting grows with the seconds of what runs again, R. So for a limit T on ``E_d`` every holding counts with the fewest
layers that run again at which it fits the memory, and the layers are shared out at the least R. The least T at which
they can be is found first; from there T goes up as long as ``T + waiting(least R of any T)`` could be better still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Bools, Ints, Num
from costmodel.facts import Facts
from costmodel.plan_costs import PlanCosts, StageTimes
from costmodel.table import PlanTable
from costmodel.terms.activations import RECOMPUTE_FULL
from planner.search.layouts.batch import Batch, Holdings
from planner.search.layouts.fold import least_maxima, least_sum
from planner.search.layouts.freedom import chooses_recompute
from planner.search.layouts.splits import Splits, splits_of
from planner.search.layouts.windows import most_layers, pipelines_of
from planner.search.request import SearchRequest

ROUNDING = 1e-10
"""By so much a limit is raised before what was computed along another path is held against it."""
_CELLS = 100_000
_ENDLESS = 1e300


def never() -> bool:
    """For what may take as long as it likes."""
    return False


def least_step_times(
    request: SearchRequest, f: Facts, table: PlanTable, limits: Num, usable: float, late: Callable[[], bool] = never
) -> Num:
    """Seconds of the best layout of each plan; infinite where none fits within the limit.

    Args:
        table: plans whose layers are free; their ``layout`` is not read.
        limits: seconds, by row; finite limits keep the choice small.
        late: is asked again and again; once it is true, only the best of what was looked at before is known.
    """
    found = np.full(len(table), np.inf)
    most = most_layers(request, f, table, limits, usable)
    for batch, rows in _batches(table, _groups(request, table, most, late)):
        if late():
            break
        best = _least(request, f, batch, limits[rows], usable, late)
        np.minimum.at(found, rows, best)
    return np.where(found <= limits * (1.0 + ROUNDING), found, np.inf)


def _groups(
    request: SearchRequest, table: PlanTable, most: Ints, late: Callable[[], bool]
) -> list[tuple[Splits, Ints]]:
    """The ways to share out layers, each with the rows that may have it."""
    found: list[tuple[Splits, Ints]] = []
    for pipeline, rows in pipelines_of(request, table):
        if late():
            break
        for bound in np.unique(most[rows]).tolist():
            own = rows[most[rows] == bound]
            found += [(splits, own) for splits in splits_of(pipeline, bound)]
    return found


def _batches(table: PlanTable, groups: list[tuple[Splits, Ints]]) -> list[tuple[Batch, Ints]]:
    """Groups of about as many holdings together, in parts that keep the working set small; with the rows of each."""
    found: list[tuple[Batch, Ints]] = []
    waiting: list[tuple[Splits, Ints]] = []

    def flush() -> None:
        if waiting:
            rows = np.concatenate([own for _, own in waiting])
            of_row = np.repeat(np.arange(len(waiting)), [len(own) for _, own in waiting])
            holdings = Holdings([splits for splits, _ in waiting])
            parts = max(1, -(-len(rows) * holdings.width // _CELLS))
            for part in np.array_split(np.arange(len(rows)), parts):
                batch = Batch(table=table.take(rows[part]), holdings=holdings, of_row=of_row[part])
                found.append((batch, rows[part]))
            waiting.clear()

    for splits, own in sorted(groups, key=lambda group: len(group[0].device)):
        if waiting and len(splits.device) > 2 * len(waiting[0][0].device) + 16:
            flush()
        waiting.append((splits, own))
    flush()
    return found


def _least(request: SearchRequest, f: Facts, batch: Batch, limits: Num, usable: float, late: Callable[[], bool]) -> Num:
    """Seconds of the best layout of each row; infinite where there is none, or no time to look."""
    found = np.full(len(batch.table), np.inf)
    # What would be best if memory were no matter says which plans are worth to look at further.
    quick = choice_of(request, f, batch, limits, None)
    possible = np.flatnonzero(np.isfinite(least_maxima(batch.holdings, batch.of_row, quick.ends_s)))
    if len(possible) and not late():
        choice = choice_of(request, f, batch.take(possible), limits[possible], usable)
        found[possible], _, _ = best_of(choice)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """What each device of some plans may hold.

    Attributes:
        told: ``(rows, holdings)``; the fewest layers of a chunk to run again at which the holding fits the memory.
        ends_s: seconds of the holding then; infinite where it never fits, or takes too long.
        again_s: of one micro-batch, of the layers that run again then beyond the policy's own.
        always_s: of those that the policy runs again anyway, by row.
    """

    batch: Batch
    times: StageTimes
    told: Ints
    ends_s: Num
    again_s: Num
    always_s: Num

    def step_time_s(self, slowest_s: Num, again_s: Num) -> Num:
        """Seconds of a step, by row; infinite where the slowest device takes for ever."""
        known = np.isfinite(slowest_s) & np.isfinite(again_s)
        step = self.times.step_time_s(np.where(known, slowest_s, 0.0), self.always_s + np.where(known, again_s, 0.0))
        return np.where(known, step, np.inf)


def _least_sums(batch: Batch, costs: Num, rows: Ints) -> Num:
    """Share out the layers of some of the plans at the least sum of the costs of holdings; infinite for the others."""
    found = np.full(len(costs), np.inf)
    of = batch.of_row[rows]
    for place in np.unique(of).tolist():
        own, splits = rows[of == place], batch.groups[place]
        found[own] = least_sum(splits, costs[own, : len(splits.device)])
    return found


def choice_of(request: SearchRequest, f: Facts, batch: Batch, limits: Num, usable: float | None) -> Choice:
    """What every device of every plan may hold.

    Args:
        usable: bytes of a device; None where memory is no matter.
    """
    table, plans = batch.table, PlanCosts.of(f, batch.table)
    free = chooses_recompute(request, table["recompute"], table["recompute_interval"])
    full = np.asarray((table["recompute"] == RECOMPUTE_FULL) & ~free)
    told = np.where(full[:, np.newaxis], batch.all_again, 0)
    fits = np.ones(told.shape, dtype=np.bool_)
    if usable is not None:
        fits = plans.device_bytes(batch.stages(told)) <= usable
        short = np.flatnonzero(free & ~fits.all(axis=1))
        if len(short):
            told[short], fits[short] = _fewest_again(f, batch.take(short), fits[short], usable)
    times = plans.times(batch.stages(told))
    always_s = np.where(full, times.again_s(*batch.layers), 0.0)
    slowest = times.slowest_s(limits, always_s)
    within = fits & (times.ends_s <= slowest[:, np.newaxis] * (1.0 + ROUNDING))
    return Choice(
        batch=batch,
        times=times,
        told=told,
        ends_s=np.where(within, times.ends_s, np.inf),
        again_s=np.where(within & free[:, np.newaxis], batch.again_s(times, told), 0.0),
        always_s=always_s,
    )


def _fewest_again(f: Facts, batch: Batch, fits: Bools, usable: float) -> tuple[Ints, Bools]:
    """The fewest to run again of each chunk at which a holding fits, and whether it then does.

    More of them never need more memory: what comes back of a layer while it runs again is no more than what it kept.
    """
    plans = PlanCosts.of(f, batch.table)
    high = np.where(fits, 0, batch.all_again)
    low = np.minimum(1, high)
    possible = fits | (plans.device_bytes(batch.stages(high)) <= usable)
    low = np.where(possible, low, high)
    while (low < high).any():
        middle = (low + high) // 2
        enough = plans.device_bytes(batch.stages(middle)) <= usable
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    return high, possible


def best_of(choice: Choice) -> tuple[Num, Num, Num]:
    """By row: seconds of a step, what the slowest device may take, and the seconds of what runs again."""
    slowest = least_maxima(choice.batch.holdings, choice.batch.of_row, choice.ends_s)
    again = np.zeros(len(slowest))
    if not choice.again_s.any():
        return choice.step_time_s(slowest, again), slowest, again

    def least_again(limit: Num) -> Num:
        costs = np.where(choice.ends_s <= limit[:, np.newaxis], choice.again_s, np.inf)
        found = np.zeros(len(limit))
        # Where nothing has to run again, the sum is known.
        open_ = np.isfinite(limit)
        some = np.flatnonzero(open_ & (np.where(np.isfinite(costs), costs, 0.0) > 0).any(axis=1))
        found[some] = _least_sums(choice.batch, costs, some)[some]
        return np.where(open_, found, np.inf)

    again = least_again(slowest)
    best = choice.step_time_s(slowest, again)
    doubtful = np.isfinite(slowest) & (again > 0)
    least = least_again(np.where(doubtful, _ENDLESS, np.inf))
    limit, at = np.where(doubtful, slowest, np.inf), slowest
    while True:
        limit = np.where(choice.ends_s > limit[:, np.newaxis], choice.ends_s, np.inf).min(axis=1)
        # A step that ends later has to be made up for by what no longer runs again.
        limit = np.where(doubtful & (again > least) & (choice.step_time_s(limit, least) < best), limit, np.inf)
        if not np.isfinite(limit).any():
            return best, at, again
        found = least_again(limit)
        step = choice.step_time_s(limit, found)
        better = step < best
        best, at, again = np.where(better, step, best), np.where(better, limit, at), np.where(better, found, again)
