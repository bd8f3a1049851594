"""The plans that a search has priced so far: the best of each family, and what they mean for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Bools, Ints, Num, distinct, num
from costmodel.certainty import certainty_of
from costmodel.facts import Facts
from costmodel.plan_rows import plan_of, stages_of_plans
from costmodel.predict import predict
from costmodel.rules import rules_for
from costmodel.table import AXES, PlanTable, stage_table
from planner.search.layouts.arrange import arranged
from planner.search.layouts.exact import least_step_times, never
from planner.search.layouts.freedom import BUT_LAYOUT, has_choice
from planner.search.objective import Objective
from planner.search.priced import ROUNDING, Priced, comparable, family_of
from planner.search.request import SearchRequest
from planner.search.space import MESH_AXES, Columns


@dataclass(frozen=True, kw_only=True)
class _Laid:
    """A plan whose best layout is known by its step time alone: it is laid out once it may be part of the answer."""

    row: dict[str, int]
    step_time_s: float
    objective: float
    devices_used: int


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

    def __len__(self) -> int:
        return len(self._plans)

    def price(self, table: PlanTable, below: int | None = None, late: Callable[[], bool] = never) -> None:
        """Exact prices of all legal plans of the table; the best of each family is kept.

        Args:
            below: lay out, as well as can be, what may then be among so many best; None prices layouts by recipe alone.
            late: is asked while layouts are looked for, which takes longest; once it is true, some are left out.
        """
        choice = has_choice(self.request, table) & (below is not None)
        lawful, by_recipe = self._legal(table, choice)
        table, by_recipe, choice = table.take(lawful), by_recipe[lawful], choice[lawful]
        step, peak = np.full(len(table), np.inf), np.full(len(table), np.inf)
        recipes = np.flatnonzero(by_recipe & ~choice)
        if len(recipes):
            some = table.take(recipes)
            priced = predict(self.facts, some, stage_table(self.request.scenario, some))
            fits = priced.device_bytes(self.facts) <= self.usable
            step[recipes], peak[recipes] = np.where(fits, priced.step_time_s, np.inf), priced.peak_bytes
        self.considered += int(by_recipe.sum())
        laid = np.full(len(table), np.inf)
        if below is not None and choice.any():
            laid = self._lay_out(table, np.flatnonzero(choice), below, late)
        objective = self.objective.of_plans(np.where(np.isfinite(laid), laid, step), table)
        ties = (peak, table["recompute"], table.devices_used, comparable(objective))
        known = np.flatnonzero(np.isfinite(objective))
        axes = (table[axis][known] for axis in reversed(AXES))
        known = known[np.lexsort((*axes, *(column[known] for column in ties)))]
        family = [*(table[axis][known] for axis in MESH_AXES), table["schedule"][known]]
        first, of_family = distinct(family)
        best = comparable(objective)[known[first]][of_family]
        recompute = table["recompute"][known[first]][of_family]
        # Plans that are laid out exactly are told apart by their memory later on.
        several = (comparable(objective)[known] == best) & (table["recompute"][known] == recompute)
        several &= np.isfinite(laid[known])
        several[first] = True
        for index in known[several].tolist():
            row, value, used = table.row(index), float(objective[index]), int(table.devices_used[index])
            if np.isfinite(laid[index]):
                self._keep(_Laid(row=row, step_time_s=float(laid[index]), objective=value, devices_used=used))
            else:
                seconds, need = float(step[index]), float(peak[index])
                self._keep(Priced(row=row, step_time_s=seconds, peak_bytes=need, objective=value, devices_used=used))

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

    def _lay_out(self, table: PlanTable, rows: Ints, below: int, late: Callable[[], bool]) -> Num:
        """Seconds of the given plans with their best layout, once for those that differ in nothing else; else infinite.

        What can't be among so many best is infinite too.
        """
        found = np.full(len(table), np.inf)
        first, _ = distinct([table[axis][rows] for axis in BUT_LAYOUT])
        one = rows[first]
        some = table.take(one)
        limits = self.objective.step_time_limits(self.limit(below) * (1.0 + ROUNDING), some.columns)
        found[one] = least_step_times(self.request, self.facts, some, limits, self.usable, late)
        return found

    def _keep(self, plan: Priced | _Laid) -> None:
        family = family_of(plan.row)
        known = self._plans.get(family)
        if known is None or _rank(plan) < _rank(known[0]):
            self._plans[family] = [plan]
        elif _rank(plan) == _rank(known[0]) and plan not in known:
            known.append(plan)

    def has_mesh(self, meshes: Columns) -> Bools:
        """The meshes of which some plan is known."""
        known = {family[: len(MESH_AXES)] for family in self._plans}
        rows = zip(*(meshes[axis].tolist() for axis in MESH_AXES), strict=True)
        return np.fromiter((row in known for row in rows), dtype=np.bool_, count=len(meshes["tp"]))

    def limit(self, k: int) -> float:
        """Objective of the k-th best different plan so far; infinite while there are fewer."""
        if len(self._plans) < k:
            return float("inf")
        return sorted(plans[0].objective for plans in self._plans.values())[k - 1]

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
        layouts = arranged(self.request, self.facts, table, num([plan.step_time_s for plan in plans]), self.usable)
        whole = [
            plan_of(scenario, plan.row, layout.chunks, layout.recomputed)
            for plan, layout in zip(plans, layouts, strict=True)
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


def _rank(plan: Priced | _Laid) -> tuple[float, int]:
    """What orders the plans of a family before their layouts are known."""
    return float(comparable(num(plan.objective))), plan.row["recompute"]
