"""The plans that a search has priced so far: the best of each family, and what they mean for the rest."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import distinct, num
from costmodel.certainty import certainty_of
from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.rules import legal_mask
from costmodel.table import AXES, PlanTable, stage_table
from planner.search.objective import Objective
from planner.search.priced import Priced, comparable
from planner.search.request import SearchRequest
from planner.search.space import MESH_AXES


class Found:
    """Prices tables of plans and keeps what could be part of the answer.

    Attributes:
        considered: how many legal plans were priced.
    """

    def __init__(self, request: SearchRequest, facts: Facts, objective: Objective, usable: float) -> None:
        self.request, self.facts, self.objective, self.usable = request, facts, objective, usable
        self.considered = 0
        self._plans: dict[tuple[int, ...], Priced] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def price(self, table: PlanTable) -> None:
        """Exact prices of all legal plans of the table; the best of each family is kept."""
        table = table.take(legal_mask(self.request.scenario, table))
        if not len(table):
            return
        self.considered += len(table)
        priced = predict(self.facts, table, stage_table(self.request.scenario, table))
        objective = self.objective.of_plans(priced.step_time_s, table)
        # Beyond the longest step that may be, the objective is infinite.
        fits = np.flatnonzero((priced.device_bytes(self.facts) <= self.usable) & np.isfinite(objective))
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
            known = self._plans.get(plan.family)
            if known is None or plan.order < known.order:
                self._plans[plan.family] = plan

    def limit(self, k: int) -> float:
        """Objective of the k-th best different plan so far; infinite while there are fewer."""
        if len(self._plans) < k:
            return float("inf")
        return sorted(plan.objective for plan in self._plans.values())[k - 1]

    def best(self, top: int) -> list[Priced]:
        """The best different plans, best first."""
        return sorted(self._plans.values(), key=lambda plan: plan.order)[:top]

    def within_interval_of(self, plan: Priced) -> int:
        """Different plans whose interval, by the objective, reaches below the upper end of this one's."""
        highest = self._at(plan, 1)
        return sum(self._at(other, -1) <= highest for other in self._plans.values())

    def _at(self, plan: Priced, sign: int) -> float:
        error = certainty_of(self.request.scenario, plan.row).time_error
        return float(self.objective.value(num(plan.step_time_s * (1.0 + error) ** sign), num(plan.devices_used)))
