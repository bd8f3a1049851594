"""The plans that a search has priced so far: the best of each family, and what they mean for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.arrays import Bools, Ints, Num, distinct, num
from costmodel.certainty import certainty_of
from costmodel.facts import Facts
from costmodel.plan_rows import plan_of, stages_of_plans
from costmodel.predict import predict, step_times
from costmodel.rules import rules_for
from costmodel.schedules import may_wait
from costmodel.table import AXES, PlanTable, stage_table
from planner.search.layouts.arrange import Arrangement, arranged
from planner.search.layouts.columns import least_waiting
from planner.search.layouts.exact import least_step_times, never
from planner.search.layouts.freedom import BUT_LAYOUT, has_choice
from planner.search.objective import Objective
from planner.search.priced import ROUNDING, Priced, comparable, family_of
from planner.search.request import SearchRequest
from planner.search.space import MESH_AXES, Columns

_WAITING_AT_ONCE = 200


@dataclass(frozen=True, kw_only=True)
class _Laid:
    """A plan whose best layout is known by its step time alone: it is laid out once it may be part of the answer.

    Attributes:
        layout: where chunks may wait for each other, which has to be laid out to be priced.
    """

    row: dict[str, int]
    step_time_s: float
    objective: float
    devices_used: int
    layout: Arrangement | None = None


class Found:
    """Prices tables of plans and keeps what could be part of the answer.

    Attributes:
        considered: how many legal plans were priced.
    """

    def __init__(self, request: SearchRequest, facts: Facts, objective: Objective, usable: float) -> None:
        self.request, self.facts, self.objective, self.usable = request, facts, objective, usable
        self.considered = 0
        # Of each family the equally good plans.
        self._plans: dict[tuple[int, ...], list[Priced | _Laid]] = {}
        # Plans whose chunks may wait: (step time, bytes) by recipe if none does, and seconds with layers of their own.
        self._open: list[tuple[PlanTable, Num, Num, Num]] = []
        # Of families that were left without a price: (less than their objective, devices).
        self._bounds: dict[tuple[int, ...], tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def price(
        self, table: PlanTable, below: int | None = None, late: Callable[[], bool] = never, *, settle: bool = True
    ) -> None:
        """Exact prices of all legal plans of the table; the best of each family is kept.

        Args:
            below: lay out, as well as can be, what may then be among so many best; None prices layouts by recipe alone.
            late: is asked while layouts are looked for, which takes longest; once it is true, some are left out.
            settle: False leaves plans whose chunks may wait for each other to the next ``settle``.
        """
        choice = has_choice(self.request, table) & (below is not None)
        lawful, by_recipe = self._legal(table, choice)
        table, by_recipe, choice = table.take(lawful), by_recipe[lawful], choice[lawful]
        self.considered += int(by_recipe.sum())
        waits = may_wait(table["schedule"], table["pp"], table["vpp"])
        laid, reached = np.full(len(table), np.inf), np.zeros(len(table), dtype=np.bool_)
        if below is not None and choice.any():
            laid, reached = self._lay_out(table, np.flatnonzero(choice), below, late)
        # An exact layout is no worse than any by recipe, but for chunks that wait for each other.
        step, peak = self._by_recipe(table, by_recipe & (~choice | (reached & waits)))
        one = np.where(np.isfinite(laid) & ~waits, laid, step)
        self._keep_best(table, one, peak, laid=np.isfinite(laid) & ~waits, rows=np.isfinite(one) & ~waits)
        open_ = np.flatnonzero(waits & (np.isfinite(step) | np.isfinite(laid)))
        if len(open_):
            self._open.append((table.take(open_), step[open_], peak[open_], laid[open_]))
        if settle:
            self.settle(late)

    def _by_recipe(self, table: PlanTable, rows: Bools) -> tuple[Num, Num]:
        """(step time, bytes) of some plans by recipe, if no chunk waits for another; infinite for what doesn't fit."""
        step, peak = np.full(len(table), np.inf), np.full(len(table), np.inf)
        if rows.any():
            some = table.take(rows)
            priced = predict(self.facts, some, stage_table(self.request.scenario, some, chunks=False))
            fits = priced.device_bytes(self.facts) <= self.usable
            step[rows], peak[rows] = np.where(fits, priced.step_time_s, np.inf), priced.peak_bytes
        return step, peak

    def _keep_best(self, table: PlanTable, step: Num, peak: Num, *, laid: Bools, rows: Bools) -> None:
        """Keep of the given plans the best of each family, and what is as good."""
        objective = self.objective.of_plans(step, table)
        ties = (peak, table["recompute"], table.devices_used, comparable(objective))
        known = np.flatnonzero(rows)
        axes = (table[axis][known] for axis in reversed(AXES))
        known = known[np.lexsort((*axes, *(column[known] for column in ties)))]
        family = [*(table[axis][known] for axis in MESH_AXES), table["schedule"][known]]
        first, of_family = distinct(family)
        best = comparable(objective)[known[first]][of_family]
        recompute = table["recompute"][known[first]][of_family]
        # Plans that are laid out exactly are told apart by their memory later on.
        several = (comparable(objective)[known] == best) & (table["recompute"][known] == recompute)
        several &= laid[known]
        several[first] = True
        for index in known[several].tolist():
            if laid[index]:
                self._keep(self._laid(table, index, float(step[index])))
            else:
                self._keep(self._priced(table, index, float(step[index]), float(peak[index])))

    def settle(self, late: Callable[[], bool] = never) -> None:
        """Price plans whose chunks may wait for each other, the least bound first, while they may be in the answer.

        Of each there is what it takes if none waits, with the layout of its row and with layers of its own.

        Args:
            late: is asked again and again; once it is true and some plan is known, the others are left out.
        """
        if not self._open:
            return
        tables, steps, peaks, lays = zip(*self._open, strict=True)
        self._open.clear()
        table = PlanTable.concatenate(tables)
        by_recipe, peak, laid = np.concatenate(steps), np.concatenate(peaks), np.concatenate(lays)
        of_row = np.tile(np.arange(len(table)), 2)
        values = np.concatenate([self.objective.of_plans(step, table) for step in (by_recipe, laid)])
        order = np.argsort(values, kind="stable")
        order = order[np.isfinite(values[order])]
        while True:
            order = order[self._may_be_best(table, of_row[order], values[order])]
            if not len(order) or (self._plans and late()):
                return
            some, order = order[:_WAITING_AT_ONCE], order[_WAITING_AT_ONCE:]
            recipes, own = of_row[some[some < len(table)]], of_row[some[some >= len(table)]]
            if len(recipes):
                rows = table.take(recipes)
                seconds = step_times(self.facts, rows, stage_table(self.request.scenario, rows))
                for index, step in zip(recipes.tolist(), seconds.tolist(), strict=True):
                    self._keep(self._priced(table, index, step, float(peak[index])))
            if len(own):
                rows = table.take(own)
                layouts = arranged(self.request, self.facts, rows, laid[own], self.usable)
                layouts, seconds = least_waiting(self.request.scenario, self.facts, rows, layouts, laid[own])
                for index, step, layout in zip(own.tolist(), seconds.tolist(), layouts, strict=True):
                    self._keep(self._laid(table, index, step, layout))

    def _may_be_best(self, table: PlanTable, rows: Ints, values: Num) -> Bools:
        """Of plans with a bound of their objective those that may be in the answer; the others are only counted."""
        limit = self.limit(self.request.top) * (1.0 + ROUNDING)
        found = np.zeros(len(rows), dtype=np.bool_)
        for place, (family, value) in enumerate(zip(_families(table, rows), values.tolist(), strict=True)):
            known = self._plans.get(family)
            found[place] = value <= min(limit, float("inf") if known is None else known[0].objective * (1.0 + ROUNDING))
            if not found[place] and value < self._bounds.get(family, (float("inf"), 0))[0]:
                self._bounds[family] = value, int(table.devices_used[rows[place]])
        return found

    def _priced(self, table: PlanTable, index: int, step_s: float, peak_bytes: float) -> Priced:
        return Priced(
            row=table.row(index), step_time_s=step_s, peak_bytes=peak_bytes, **self._value(table, index, step_s)
        )

    def _laid(self, table: PlanTable, index: int, step_s: float, layout: Arrangement | None = None) -> _Laid:
        return _Laid(row=table.row(index), step_time_s=step_s, layout=layout, **self._value(table, index, step_s))

    def _value(self, table: PlanTable, index: int, step_s: float) -> dict[str, Any]:
        used = int(table.devices_used[index])
        return {"objective": float(self.objective.value(num(step_s), num(used))), "devices_used": used}

    def _legal(self, table: PlanTable, choice: Bools) -> tuple[Bools, Bools]:
        """The plans that are legal with their layout or, where that is chosen, with some; and the former alone."""
        scenario = self.request.scenario
        lawful, own = np.ones(len(table), dtype=np.bool_), np.ones(len(table), dtype=np.bool_)
        for rule in rules_for(scenario.framework):
            holds = rule.holds(scenario, table.columns)
            if "layout" in rule.axes:
                own &= holds
            else:
                lawful &= holds
        own &= lawful
        return own | (lawful & choice), own

    def _lay_out(self, table: PlanTable, rows: Ints, below: int, late: Callable[[], bool]) -> tuple[Num, Bools]:
        """Seconds of the given plans with their best layout, once for those that differ in nothing else; else infinite.

        What can't be among so many best is infinite too. The second says of every plan whether it may be.
        """
        found, reached = np.full(len(table), np.inf), np.zeros(len(table), dtype=np.bool_)
        first, of_row = distinct([table[axis][rows] for axis in BUT_LAYOUT])
        one = rows[first]
        some = table.take(one)
        limits = self.objective.step_time_limits(self.limit(below) * (1.0 + ROUNDING), some.columns)
        limits = np.minimum(limits, self.step_limits(some.columns))
        found[one] = least_step_times(self.request, self.facts, some, limits, self.usable, late)
        reached[rows] = np.isfinite(found[one])[of_row]
        return found, reached

    def _keep(self, plan: Priced | _Laid) -> None:
        family = family_of(plan.row)
        if not np.isfinite(plan.objective):
            return
        known = self._plans.get(family)
        if known is None or _rank(plan) < _rank(known[0]):
            self._plans[family] = [plan]
        elif _rank(plan) == _rank(known[0]) and plan not in known:
            known.append(plan)

    def has_mesh(self, meshes: Columns) -> Bools:
        """The meshes of which some plan is known."""
        known = {family[: len(MESH_AXES)] for family in (*self._plans, *self._bounds)}
        rows = zip(*(meshes[axis].tolist() for axis in MESH_AXES), strict=True)
        return np.fromiter((row in known for row in rows), dtype=np.bool_, count=len(meshes["tp"]))

    def limit(self, k: int) -> float:
        """Objective of the k-th best different plan so far; infinite while there are fewer."""
        if len(self._plans) < k:
            return float("inf")
        return sorted(plans[0].objective for plans in self._plans.values())[k - 1]

    def step_limits(self, columns: Mapping[str, Ints]) -> Num:
        """Up to which step time each plan may be the best of its family; infinite where no plan of that is known."""
        known = (self._plans.get(family) for family in _families(columns, slice(None)))
        return num([np.inf if plans is None else plans[0].step_time_s * (1.0 + ROUNDING) for plans in known])

    def best(self, top: int) -> list[Priced]:
        """The best different plans, best first, laid out."""
        ranked = sorted(self._plans.items(), key=lambda item: _rank(item[1][0])[0])
        last = _rank(ranked[:top][-1][1][0])[0] if ranked else 0.0
        chosen = [(family, plans) for family, plans in ranked if _rank(plans[0])[0] <= last]
        open_ = [plan for _, plans in chosen for plan in plans if isinstance(plan, _Laid)]
        laid_out = dict(zip(map(id, open_), self._laid_out(open_), strict=True))
        for family, plans in chosen:
            settled = [laid_out[id(plan)] if isinstance(plan, _Laid) else plan for plan in plans]
            self._plans[family] = [min(settled, key=lambda plan: plan.order)]
        found = [plans[0] for plans in self._plans.values() if isinstance(plans[0], Priced)]
        return sorted(found, key=lambda plan: plan.order)[:top]

    def _laid_out(self, plans: Sequence[_Laid]) -> list[Priced]:
        """The plans with their layouts, priced as any plan is."""
        if not plans:
            return []
        scenario, table = self.request.scenario, PlanTable.of_rows([plan.row for plan in plans])
        layouts = [plan.layout for plan in plans]
        open_ = [place for place, layout in enumerate(layouts) if layout is None]
        if open_:
            steps = num([plans[place].step_time_s for place in open_])
            found = arranged(self.request, self.facts, table.take(np.array(open_)), steps, self.usable)
            for place, layout in zip(open_, found, strict=True):
                layouts[place] = layout
        whole = [
            plan_of(scenario, plan.row, layout.chunks, layout.recomputed)
            for plan, layout in zip(plans, layouts, strict=True)
            if layout is not None
        ]
        priced = predict(self.facts, table, stages_of_plans(scenario, whole))
        objective = self.objective.of_plans(priced.step_time_s, table)
        return [
            Priced.of_plan(
                scenario,
                plan,
                step_time_s=float(priced.step_time_s[place]),
                peak_bytes=float(priced.peak_bytes[place]),
                objective=float(objective[place]),
            )
            for place, plan in enumerate(whole)
        ]

    def within_interval_of(self, plan: Priced) -> int:
        """Different plans whose interval, by the objective, reaches below the upper end of this one's."""
        highest = self._at(plan, 1)
        return sum(self._at(plans[0], -1) <= highest for plans in self._plans.values())

    def _at(self, plan: Priced | _Laid, sign: int) -> float:
        error = certainty_of(self.request.scenario, plan.row).time_error
        return float(self.objective.value(num(plan.step_time_s * (1.0 + error) ** sign), num(plan.devices_used)))


def _families(columns: Mapping[str, Ints] | PlanTable, rows: Ints | slice) -> Iterator[tuple[int, ...]]:
    """``family_of`` each of some rows."""
    return zip(*(columns[axis][rows].tolist() for axis in (*MESH_AXES, "schedule")), strict=True)


def _rank(plan: Priced | _Laid) -> tuple[float, int]:
    """What orders the plans of a family before their layouts are known."""
    return float(comparable(num(plan.objective))), plan.row["recompute"]
