"""One search, end to end: relax, price good plans, let the master list what could still matter, price that exactly.

1. All meshes that devices and batch allow; those that break a rule are counted and dropped.
2. Every legal mesh gets a lower bound per recompute policy and combination of options; what can't fit is dropped.
3. Incumbents: the most promising rows are priced in full; the k-th best different mesh is the limit.
4. The CP-SAT master lists every decision that is below the limit by the relaxations; each is priced in full.
   When it finishes, nothing else can be among the best k: the list is proven.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from costmodel.arrays import Ints, Num, num
from costmodel.facts import Facts
from costmodel.spec.plan import SCHEDULES
from costmodel.table import PlanTable
from planner.search.bounds import row_bounds, work_bound_device_s
from planner.search.constraints import Contradiction
from planner.search.device_bounds import RowBound
from planner.search.eliminate import MEMORY, Elimination, eliminate
from planner.search.found import Found
from planner.search.layouts.freedom import may_choose
from planner.search.leanest import nearest_plan
from planner.search.master import Enumeration, decisions_of, enumerate_below
from planner.search.objective import Objective, objective_of
from planner.search.priced import ROUNDING, Priced
from planner.search.relaxation import Part, Relaxation
from planner.search.request import SearchRequest
from planner.search.rows import expand, rows_of
from planner.search.space import Columns, mesh_candidates
from planner.search.stage_steps import least_step_time
from planner.search.unfit import unfit_meshes

_ROWS_PER_ROUND = 256
_ROUNDS = 12
_ROUNDS_AT_LEAST = 6
_ROWS_AT_FIRST = 50
_ROWS_AT_ONCE = 500
_LONG_LIST = 20
_PLANS_AT_ONCE = 1000
_PLANS_AT_ONCE_OF_MANY = 150  # far from the best, devices may hold many more numbers of layers

Progress = Callable[[str, dict[str, Any]], None]
"""Is told a few times in a search, at most ten, how far it is: a word for the step, and its figures as JSON has them.

``candidates``: meshes, and how many are legal; ``relaxed``: the bound; ``incumbents``: how many plans are known and the
best of them; ``listed``: how many decisions the master listed, whether these are all, and the best then. ``best`` and
``bound`` are in the objective's unit as it is shown, None while there is none.
"""


@dataclass(kw_only=True)
class Outcome:
    """What a search found.

    Attributes:
        meshes: candidates before any rule; ``elimination`` says why which of them dropped out.
        best: different plans, best first.
        bound: no plan of the space has a lower objective; None when nothing is known.
        proven: whether nothing outside ``best`` can belong into it.
        best_proven: whether at least its first plan is proven.
        within: different plans, among those priced, that the interval can't tell from the best.
        leanest: when nothing fits: the plan that needs the least memory.
        memory_counted: whether there was time to count what does not fit.
    """

    elimination: Elimination
    meshes: int
    best: list[Priced] = field(default_factory=list)
    bound: float | None = None
    proven: bool = False
    best_proven: bool = False
    within: int = 0
    plans_considered: int = 0
    master_solutions: int = 0
    elapsed_s: float = 0.0
    leanest: PlanTable | None = None
    memory_counted: bool = True


class _Bounded(NamedTuple):
    """The rows of a part with their bounds; ``of_pair`` ascends."""

    part: Part
    rows: Columns
    of_pair: Ints
    least: Num
    bounds: RowBound


class Search:
    """State of one search.

    Args:
        progress: is called from the searching thread and should return at once.
        stopped: once it is set, the search ends as soon as it can, as if its deadline had passed.
        proving: whether to prove what was found and to count what doesn't fit; without, good plans come sooner.
    """

    def __init__(
        self,
        request: SearchRequest,
        progress: Progress | None = None,
        stopped: threading.Event | None = None,
        *,
        proving: bool = True,
    ) -> None:
        self.proving = proving
        self.request = request
        self.progress = progress
        self.stopped = stopped
        self.facts = Facts.of(request.scenario)
        self.usable = float(request.scenario.usable_bytes)
        self.objective: Objective = objective_of(request)
        self.found = Found(request, self.facts, self.objective, self.usable)
        self._bounded: _Bounded | None = None  # what incumbents were looked for among is listed next
        self.started = time.monotonic()
        self.deadline = self.started + request.max_seconds

    def run(self) -> Outcome:
        """The whole search; returns what it has when the deadline passes.

        Pins and forbids that contradict each other leave no mesh at all.
        """
        try:
            return self._run()
        except Contradiction:
            nothing = Elimination(legal=np.zeros(0, dtype=np.bool_))
            return Outcome(elimination=nothing, meshes=0, proven=True, elapsed_s=time.monotonic() - self.started)

    def _run(self) -> Outcome:
        candidates = mesh_candidates(self.request)
        elimination = eliminate(self.request, candidates)
        outcome = Outcome(elimination=elimination, meshes=len(candidates["tp"]))
        self._tell("candidates", meshes=outcome.meshes, legal=int(elimination.legal.sum()))
        meshes = {axis: column[elimination.legal] for axis, column in candidates.items()}
        if len(meshes["tp"]):
            self._run_on_legal(meshes, outcome)
        else:
            outcome.proven = True
        outcome.best = self.found.best(self.request.top)
        outcome.best_proven |= outcome.proven
        if outcome.best:
            outcome.bound = outcome.best[0].objective if outcome.best_proven else outcome.bound
            outcome.within = self.found.within_interval_of(outcome.best[0])
        outcome.plans_considered = self.found.considered
        outcome.elapsed_s = time.monotonic() - self.started
        return outcome

    def _late(self) -> bool:
        return time.monotonic() > self.deadline or (self.stopped is not None and self.stopped.is_set())

    def _tell(self, step: str, **figures: Any) -> None:
        if self.progress is not None:
            self.progress(step, figures)

    def _shown(self, value: float | None) -> float | None:
        return self.objective.shown(value) if value is not None and np.isfinite(value) else None

    def _run_on_legal(self, meshes: Columns, outcome: Outcome) -> None:
        relaxation = Relaxation(self.request, self.facts, self.objective, self.usable, meshes, self._late)
        least = relaxation.least()
        bound = least if relaxation.complete and np.isfinite(least) else self._work_bound()
        outcome.bound = bound if np.isfinite(bound) else None
        self._tell("relaxed", bound=self._shown(outcome.bound) if np.isfinite(least) else None)
        if not np.isfinite(least):
            outcome.proven = relaxation.complete
        else:
            all_priced = self._find_incumbents(meshes, relaxation)
            self._tell("incumbents", best=self._shown(self.found.limit(1)), plans=len(self.found))
            if all_priced and relaxation.complete and not may_choose(self.request):
                outcome.proven = True
            elif all_priced and relaxation.complete and not np.isfinite(self.found.limit(self.request.top)):
                outcome.proven = self._lay_out_all(meshes, relaxation)
            elif relaxation.complete and self.proving:
                self._prove(meshes, relaxation, outcome)
        if self.proving:
            self._count_memory(meshes, outcome)

    def _work_bound(self) -> float:
        """A bound that needs no mesh, for when the deadline leaves no better one."""
        device_s = work_bound_device_s(self.request, self.facts)
        ends = num([self.request.least_devices, self.request.scenario.devices])
        return float(self.objective.value(device_s / ends, ends).min())

    def _count_memory(self, meshes: Columns, outcome: Outcome) -> None:
        """Count the legal meshes of which no plan fits, and keep the leanest plan of all when that is every one.

        What is not known yet is for information: once the deadline has passed it is left out, and said to be.
        """
        if outcome.proven and not self.found:
            outcome.elimination.counts[MEMORY] = len(meshes["tp"])
            outcome.leanest = nearest_plan(self.request, self.facts, meshes, self._late)
        else:
            unfit = unfit_meshes(self.request, self.facts, meshes, self.usable, self._late)
            outcome.memory_counted = unfit is not None
            if unfit is not None:
                # Layers of their own make some of them fit that no recipe does.
                unfit &= ~self.found.has_mesh(meshes)
            if unfit is not None and unfit.any():
                outcome.elimination.counts[MEMORY] = int(unfit.sum())

    def _bounded_rows(self, meshes: Columns, part: Part) -> tuple[Columns, Num, RowBound]:
        """Rows of pairs of a policy and a mesh with the least objective of each, and their bounds."""
        known = self._bounded if self._bounded is not None and self._bounded.part.begins_with(part) else None
        if known is None:
            rows, of_pair = rows_of(self.request, meshes, part.policy, part.mesh)
            bounds = row_bounds(self.request, self.facts, rows)
            least = least_step_time(self.request, self.facts, rows, bounds, self.usable)
            known = _Bounded(part, rows, of_pair, self.objective.of_rows(least, rows), bounds)
            self._bounded = known
        some = np.arange(np.searchsorted(known.of_pair, len(part.mesh)))
        rows = {axis: column[some] for axis, column in known.rows.items()}
        return rows, known.least[some], known.bounds.take(some)

    # -- incumbents ----------------------------------------------------------------------------------------------------

    def _find_incumbents(self, meshes: Columns, relaxation: Relaxation) -> bool:
        """Price the most promising rows until there are enough different plans; True when that was all there is."""
        for part in relaxation.parts():
            rows, least, _ = self._bounded_rows(meshes, part)
            if self._price_best_first(rows, least):
                return False
        return True

    def _price_best_first(self, rows: Columns, least: Num) -> bool:
        """Price rows by their bound; True when enough was seen or the deadline passed, False when all were priced."""
        order = np.argsort(least, kind="stable")
        order = order[np.isfinite(least[order])]
        for number, start in enumerate(range(0, len(order), _ROWS_PER_ROUND)):
            some = order[start : start + _ROWS_PER_ROUND]
            limit = self.found.limit(self.request.top)
            enough = np.isfinite(limit) and (number >= _ROUNDS or least[some[0]] > limit)
            # The first rounds are priced whatever the clock says: an answer that was cut short still has a plan.
            late = self._late() and (number >= _ROUNDS_AT_LEAST or len(self.found) > 0)
            if enough or late:
                return True
            table, _ = expand(self.request, {axis: column[some] for axis, column in rows.items()})
            self.found.price(table, late=self._late)
        return False

    def _lay_out_all(self, meshes: Columns, relaxation: Relaxation) -> bool:
        """Look for the best layout of everything that may fit, the least bound first; True when there was time."""
        for part in relaxation.parts():
            rows, least, _ = self._bounded_rows(meshes, part)
            order = np.argsort(least, kind="stable")
            order = order[np.isfinite(least[order])]
            for start in range(0, len(order), _ROWS_PER_ROUND):
                if self._late():
                    return False
                some = order[start : start + _ROWS_PER_ROUND]
                some = some[least[some] <= self._limit(self.request.top)]
                table, _ = expand(self.request, {axis: column[some] for axis, column in rows.items()})
                self.found.price(table, self.request.top, self._late)
        return relaxation.complete and not self._late()

    # -- master --------------------------------------------------------------------------------------------------------

    def _prove(self, meshes: Columns, relaxation: Relaxation, outcome: Outcome) -> None:
        """Prove the list; a long one may take too long, so its first plan is proven on its own before."""
        for k in (1, self.request.top) if self.request.top > _LONG_LIST else (self.request.top,):
            outcome.proven = self._list_below(meshes, relaxation, k, outcome)
            outcome.best_proven |= outcome.proven
            best = self._shown(self.found.limit(1))
            self._tell("listed", decisions=outcome.master_solutions, complete=outcome.proven, best=best)
            if not outcome.proven:
                return

    def _list_below(self, meshes: Columns, relaxation: Relaxation, k: int, outcome: Outcome) -> bool:
        """List and price everything that may be below the k-th best plan; True when that was all there is.

        The master gets rows in blocks, the least bound first: the solver's work before its first solution grows faster
        than the rows, and it looks at no clock in parts of it. What a block finds lowers the limit for the next, and
        what is left is never below the first row of the next block.
        """
        outcome.master_solutions = 0
        if not np.isfinite(self.found.limit(k)):
            return False
        size = _ROWS_AT_FIRST
        for part in relaxation.parts(lambda: self._limit(k)):
            if self._late():
                return False
            rows, least, bounds = self._bounded_rows(meshes, part)
            by_bound = np.argsort(least, kind="stable")
            while len(by_bound):
                some, by_bound = np.split(by_bound, [min(size, _ROWS_AT_ONCE)])
                some = some[least[some] <= self._limit(k)]
                size *= 2
                if not len(some):
                    break
                self._raise_bound(min(float(least[some[0]]), part.later), outcome)
                if self._late():
                    return False
                listed = self._master({axis: column[some] for axis, column in rows.items()}, bounds.take(some), k)
                outcome.master_solutions += len(listed)
                if not self._price_listed(listed, k) or not listed.complete:
                    return False
        return relaxation.complete

    def _limit(self, k: int) -> float:
        """Up to where a plan may be the k-th best: computed along another path than the bounds, so with some room."""
        return self.found.limit(k) * (1.0 + ROUNDING)

    def _raise_bound(self, unseen: float, outcome: Outcome) -> None:
        """Nothing that is not priced yet lies below ``unseen``."""
        outcome.best_proven |= unseen > self._limit(1)
        known = outcome.bound if outcome.bound is not None else 0.0
        outcome.bound = max(known, min(unseen / (1.0 + ROUNDING), self.found.limit(1)))

    def _master(self, rows: Columns, bounds: RowBound, k: int) -> Enumeration:
        limits = self.objective.step_time_limits(self._limit(k), rows)[:, np.newaxis]
        one = np.ones(len(rows["tp"]), dtype=np.int64)
        own = [self.found.step_limits({**rows, "schedule": code * one}) for code in range(len(SCHEDULES))]
        limits = np.minimum(limits, np.stack(own, axis=1))
        return enumerate_below(self.request, self.facts, rows, bounds, limits, self.usable, self.deadline, self.stopped)

    def _price_listed(self, listed: Enumeration, k: int) -> bool:
        """Expand the master's decisions over CP exchanges, and price them with the best of their layouts.

        Returns:
            Whether there was time for all of them.
        """
        if len(listed):
            rows = listed.rows()
            table, of_row = expand(self.request, rows)
            least_of = dict(zip(map(tuple, listed.as_rows()), listed.least_s.tolist(), strict=True))
            decided = decisions_of(rows, table, of_row)
            least = num([least_of.get(tuple(row), np.inf) for row in decided])
            order = np.argsort(least, kind="stable")
            order = order[np.isfinite(least[order])]
            size = _PLANS_AT_ONCE_OF_MANY if k > _LONG_LIST else _PLANS_AT_ONCE
            while len(order):
                # What was found meanwhile lowers the limits.
                limits = self.objective.step_time_limits(self._limit(k), table.columns)
                limits = np.minimum(limits[order], self.found.step_limits(table.take(order).columns))
                order = order[least[order] <= limits]
                some, order = order[:size], order[size:]
                if not len(some):
                    break
                self.found.price(table.take(some), k, self._late, settle=False)
                if self._late():
                    break
            self.found.settle(self._late)
            return not self._late()
        return True
