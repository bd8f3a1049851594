"""One search, end to end: relax, price good plans, let the master list what could still matter, price that exactly.

1. All meshes that devices and batch allow; those that break a rule are counted and dropped.
2. Every legal mesh gets a lower bound per recompute policy; what can't fit is dropped.
3. Incumbents: the most promising rows are priced in full; the k-th best different mesh is the limit.
4. The CP-SAT master lists every decision that is below the limit by the relaxations; each is priced in full.
   When it finishes, nothing else can be among the best k: the list is proven.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from costmodel.arrays import Bools, Ints, Num, distinct, num
from costmodel.certainty import certainty_of
from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.rules import legal_mask
from costmodel.spec.plan import RECOMPUTES
from costmodel.table import AXES, PlanTable, mesh_size, stage_table
from planner.search.bounds import RowBound, least_step_time, memory_bounds, row_bounds, with_inner, work_bound_device_s
from planner.search.eliminate import MEMORY, Elimination, eliminate
from planner.search.leanest import nearest_plan, unfit_meshes
from planner.search.master import DECISIONS, Enumeration, enumerate_below
from planner.search.objective import Objective, objective_of
from planner.search.priced import ROUNDING, Priced, comparable
from planner.search.request import SearchRequest
from planner.search.rows import expand, rows_of
from planner.search.space import MESH_AXES, Columns, legal_zero_stages, mesh_candidates, recompute_policies

_ROWS_PER_ROUND = 256
_ROUNDS = 12
_PAIRS_AT_ONCE = 3000
_MESHES_IN_A_BLOCK = 20_000
_LONG_LIST = 20

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


class Search:
    """State of one search.

    Args:
        progress: is called from the searching thread and should return at once.
        stopped: once it is set, the search ends as soon as it can, as if its deadline had passed.
    """

    def __init__(
        self, request: SearchRequest, progress: Progress | None = None, stopped: threading.Event | None = None
    ) -> None:
        self.request = request
        self.progress = progress
        self.stopped = stopped
        self.facts = Facts.of(request.scenario)
        self.usable = float(request.scenario.usable_bytes)
        self.objective: Objective = objective_of(request)
        self.found: dict[tuple[int, ...], Priced] = {}
        self.considered = 0
        self.started = time.monotonic()
        self.deadline = self.started + request.max_seconds

    def run(self) -> Outcome:
        """The whole search; returns what it has when the deadline passes."""
        candidates = mesh_candidates(self.request)
        elimination = eliminate(self.request, candidates)
        outcome = Outcome(elimination=elimination, meshes=len(candidates["tp"]))
        self._tell("candidates", meshes=outcome.meshes, legal=int(elimination.legal.sum()))
        meshes = {axis: column[elimination.legal] for axis, column in candidates.items()}
        if len(meshes["tp"]):
            self._run_on_legal(meshes, outcome)
        else:
            outcome.proven = True
        outcome.best = sorted(self.found.values(), key=lambda plan: plan.order)[: self.request.top]
        outcome.best_proven |= outcome.proven
        if outcome.best and outcome.best_proven:
            outcome.bound = outcome.best[0].objective
        outcome.within = self._within(outcome.best)
        outcome.plans_considered = self.considered
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
        least, relaxed = self._relax(meshes)
        values = self.objective.of_rows(least, meshes)
        possible = np.isfinite(values)
        outcome.bound = float(values[possible].min()) if relaxed and possible.any() else self._work_bound()
        self._tell("relaxed", bound=self._shown(outcome.bound) if possible.any() else None)
        if not possible.any():
            outcome.proven = relaxed
        else:
            all_priced = self._find_incumbents(meshes, values)
            self._tell("incumbents", best=self._shown(self._limit(1)), plans=len(self.found))
            if all_priced and relaxed:
                outcome.proven = True
            elif relaxed:
                self._prove(meshes, values, outcome)
        self._count_memory(meshes, np.asarray(possible.any(axis=0)), outcome)

    def _work_bound(self) -> float:
        """A bound that needs no mesh, for when the deadline leaves no better one."""
        device_s = work_bound_device_s(self.request, self.facts)
        ends = num([self.request.least_devices, self.request.scenario.devices])
        return float(self.objective.value(device_s / ends, ends).min())

    def _count_memory(self, meshes: Columns, may_fit: Bools, outcome: Outcome) -> None:
        """Count the legal meshes of which no plan fits, and keep the leanest plan of all when that is every one.

        What is not known yet is for information: once the deadline has passed it is left out, and said to be.
        """
        if outcome.proven and not self.found:
            outcome.elimination.counts[MEMORY] = len(meshes["tp"])
            if not self._late():
                outcome.leanest = nearest_plan(self.request, self.facts, meshes)
        elif self._late():
            outcome.memory_counted = False
        else:
            unfit = unfit_meshes(self.request, self.facts, meshes, may_fit, self.usable)
            if unfit.any():
                outcome.elimination.counts[MEMORY] = int(unfit.sum())

    def _within(self, best: list[Priced]) -> int:
        """Different plans priced so far whose interval, by the objective, reaches below the upper end of the best's."""
        if not best:
            return 0

        def at(plan: Priced, sign: int) -> float:
            _, error = certainty_of(self.request.scenario, plan.row)
            return float(self.objective.value(num(plan.step_time_s * (1.0 + error) ** sign), num(plan.devices_used)))

        highest = at(best[0], 1)
        return sum(at(plan, -1) <= highest for plan in self.found.values())

    # -- relaxations ---------------------------------------------------------------------------------------------------

    def _relax(self, meshes: Columns) -> tuple[Num, bool]:
        """Least step time per (recompute policy, mesh): time as if little were sharded, memory as if all were.

        Works through blocks of meshes, most devices and smallest micro-batches first, so that a deadline leaves the
        likeliest ones bounded.

        Returns:
            Seconds, infinite for what can't fit or was not reached; and whether all were reached.
        """
        least = np.full((len(RECOMPUTES), len(meshes["tp"])), np.inf)
        order = np.lexsort((-mesh_size(meshes), meshes["micro_batch_size"]))
        for start in range(0, len(order), _MESHES_IN_A_BLOCK):
            if start and self._late():
                return least, False
            block = order[start : start + _MESHES_IN_A_BLOCK]
            least[:, block] = self._relax_block({axis: column[block] for axis, column in meshes.items()})
        return least, True

    def _relax_block(self, meshes: Columns) -> Num:
        request, f = self.request, self.facts
        zero_stages = legal_zero_stages(request)
        least = np.full((len(RECOMPUTES), len(meshes["tp"])), np.inf)
        for recompute in recompute_policies(request):
            quick = row_bounds(request, f, with_inner(meshes, recompute=recompute, zero_stage=min((1, *zero_stages))))
            # Gathered layers can make stage 3 need more than stage 2, so both are tried.
            for zero in zero_stages[-2:]:
                lean = memory_bounds(f, with_inner(meshes, recompute=recompute, zero_stage=zero))
                mixed = replace(quick, **lean)
                value = least_step_time(request, f, meshes, mixed, self.usable)
                least[recompute] = np.minimum(least[recompute], value)
        return least

    def _bounded_rows(self, meshes: Columns, recompute: Ints, mesh: Ints) -> tuple[Columns, Num, RowBound]:
        """Rows of (recompute policy, mesh) pairs with the least objective of each, and their bounds."""
        rows, _ = rows_of(self.request, meshes, recompute, mesh)
        bounds = row_bounds(self.request, self.facts, rows)
        least = least_step_time(self.request, self.facts, rows, bounds, self.usable)
        return rows, self.objective.of_rows(least, rows), bounds

    # -- incumbents ----------------------------------------------------------------------------------------------------

    def _find_incumbents(self, meshes: Columns, values: Num) -> bool:
        """Price the most promising rows until there are enough different plans; True when that was all there is."""
        order = np.argsort(values, axis=None, kind="stable")
        order = order[np.isfinite(values.ravel()[order])]
        for start in range(0, len(order), _PAIRS_AT_ONCE):
            pairs = np.unravel_index(order[start : start + _PAIRS_AT_ONCE], values.shape)
            rows, least, _ = self._bounded_rows(meshes, *pairs)
            if self._price_best_first(rows, least):
                return False
        return True

    def _price_best_first(self, rows: Columns, least: Num) -> bool:
        """Price rows by their bound; True when enough was seen or the deadline passed, False when all were priced."""
        order = np.argsort(least, kind="stable")
        order = order[np.isfinite(least[order])]
        for number, start in enumerate(range(0, len(order), _ROWS_PER_ROUND)):
            some = order[start : start + _ROWS_PER_ROUND]
            limit = self._limit(self.request.top)
            enough = np.isfinite(limit) and (number >= _ROUNDS or least[some[0]] > limit)
            # The first round is priced whatever the clock says: an answer that was cut short still has a plan.
            late = self._late() and (number > 0 or bool(self.found))
            if enough or late:
                return True
            self._price(expand(self.request, {axis: column[some] for axis, column in rows.items()})[0])
        return False

    def _limit(self, k: int) -> float:
        """Objective of the k-th best different plan so far; infinite while there are fewer."""
        if len(self.found) < k:
            return float("inf")
        return sorted(plan.objective for plan in self.found.values())[k - 1]

    # -- master --------------------------------------------------------------------------------------------------------

    def _prove(self, meshes: Columns, values: Num, outcome: Outcome) -> None:
        """Prove the list; a long one may take too long, so its first plan is proven on its own before."""
        limits = [self._limit(1)] if self.request.top > _LONG_LIST else []
        for limit in [*limits, self._limit(self.request.top)]:
            listed = self._master(meshes, values, limit)
            self._price_listed(listed)
            outcome.master_solutions = len(listed)
            outcome.best_proven |= listed.complete
            outcome.proven = listed.complete
            self._tell("listed", decisions=len(listed), complete=listed.complete, best=self._shown(self._limit(1)))

    def _master(self, meshes: Columns, values: Num, limit: float) -> Enumeration:
        """Let CP-SAT list what is below the limit; nothing, and incomplete, once the deadline has passed."""
        if self._late() or not np.isfinite(limit):
            return Enumeration.nothing(complete=False)
        # Bound and price are computed along different paths: a plan exactly at the limit must not be lost to rounding.
        limit *= 1.0 + ROUNDING
        rows, least, bounds = self._bounded_rows(meshes, *np.nonzero(values <= limit))
        keep = np.flatnonzero(least <= limit)
        if not len(keep):
            return Enumeration.nothing(complete=True)
        rows = {axis: column[keep] for axis, column in rows.items()}
        limits = self.objective.step_time_limits(limit, rows)
        return enumerate_below(
            self.request, self.facts, rows, bounds.take(keep), limits, self.usable, self.deadline, self.stopped
        )

    def _price_listed(self, listed: Enumeration) -> None:
        """Expand the master's decisions over layouts and CP exchanges, and price them."""
        if len(listed):
            table, _ = expand(self.request, listed.rows())
            wanted = set(map(tuple, listed.as_rows()))
            decided = np.stack([table[axis] for axis in DECISIONS], axis=1).tolist()
            self._price(table.take(np.array([tuple(row) in wanted for row in decided], dtype=np.bool_)))

    # -- pricing -------------------------------------------------------------------------------------------------------

    def _price(self, table: PlanTable) -> None:
        """Exact prices of all legal plans of the table; the best of each family is kept."""
        table = table.take(legal_mask(self.request.scenario, table))
        if not len(table):
            return
        self.considered += len(table)
        priced = predict(self.facts, table, stage_table(self.request.scenario, table))
        objective = self.objective.of_plans(priced.step_time_s, table)
        fits = np.flatnonzero(priced.peak_bytes <= self.usable)
        ties = (priced.peak_bytes, table["recompute"], table.devices_used, comparable(objective))
        axes = (table[axis][fits] for axis in reversed(AXES))
        fits = fits[np.lexsort((*axes, *(column[fits] for column in ties)))]
        family = [*(table[axis][fits] for axis in MESH_AXES), table["schedule"][fits]]
        first, _ = distinct(family)
        for index in fits[first].tolist():
            plan = Priced(
                row=table.row(index),
                step_time_s=float(priced.step_time_s[index]),
                peak_bytes=float(priced.peak_bytes[index]),
                objective=float(objective[index]),
                devices_used=int(table.devices_used[index]),
            )
            known = self.found.get(plan.family)
            if known is None or plan.order < known.order:
                self.found[plan.family] = plan
