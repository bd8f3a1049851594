"""What is minimised, as one number per plan, and what a limit on it means for the step time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Ints, Num, num
from costmodel.table import PlanTable, mesh_size
from planner.search.request import ObjectiveKind, SearchRequest

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A monotone function of step time and devices used; infinite for a step time beyond ``max_step_time_s``.

    ``fewest_devices`` is lexicographic: devices first, then step time, folded into the fraction ``t / (1 + t)``.
    """

    kind: ObjectiveKind
    price: float
    max_step_time_s: float = np.inf

    def value(self, step_time_s: Num, devices_used: Num) -> Num:
        """The number to minimise."""
        if np.isfinite(self.max_step_time_s):
            step_time_s = np.where(step_time_s <= self.max_step_time_s, step_time_s, np.inf)
        if self.kind == "cost":
            return self.price * devices_used * step_time_s / _SECONDS_PER_HOUR
        if self.kind == "fewest_devices":
            with np.errstate(invalid="ignore"):
                folded = np.where(np.isfinite(step_time_s), step_time_s / (1.0 + step_time_s), np.inf)
            return devices_used + folded
        return step_time_s

    def shown(self, value: float) -> float:
        """The value as it is reported: whole devices, seconds, or money."""
        return float(np.floor(value)) if self.kind == "fewest_devices" else value

    def of_rows(self, step_time_s: Num, rows: Mapping[str, Ints]) -> Num:
        """Values of rows that name the dense mesh."""
        return self.value(step_time_s, num(mesh_size(rows)))

    def of_plans(self, step_time_s: Num, table: PlanTable) -> Num:
        """Values of a table of plans."""
        return self.value(step_time_s, num(table.devices_used))

    def step_time_limits(self, limit: float, rows: Mapping[str, Ints]) -> Num:
        """For each row the step time at which the objective reaches ``limit``; negative where it lies above at any."""
        return np.minimum(self._limits(limit, num(mesh_size(rows))), self.max_step_time_s)

    def _limits(self, limit: float, used: Num) -> Num:
        if not np.isfinite(limit):
            return np.full(used.shape, np.inf)
        if self.kind == "cost":
            return limit * _SECONDS_PER_HOUR / (self.price * used)
        if self.kind == "fewest_devices":
            left = limit - used
            inside = np.clip(left, 0.0, 1.0 - 1e-12)
            return np.where(left >= 1.0, np.inf, np.where(left < 0.0, -1.0, inside / (1.0 - inside)))
        return np.full(used.shape, limit)


def objective_of(request: SearchRequest) -> Objective:
    """The request's objective."""
    longest = np.inf if request.max_step_time_s is None else request.max_step_time_s
    return Objective(kind=request.objective, price=request.price or 0.0, max_step_time_s=longest)
