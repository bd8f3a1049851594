"""A plan with its price, and what orders plans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Num, num
from costmodel.table import AXES
from planner.search.space import MESH_AXES

ROUNDING = 1e-9
"""Relative difference of values that were computed along different paths and are meant to be equal."""


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A plan with its price: one row of a plan table, and what orders it."""

    row: dict[str, int]
    step_time_s: float
    peak_bytes: float
    objective: float
    devices_used: int

    @property
    def family(self) -> tuple[int, ...]:
        """What makes it a different plan from another: the mesh, the micro-batch and the schedule."""
        return (*(self.row[axis] for axis in MESH_AXES), self.row["schedule"])

    @property
    def order(self) -> tuple[float, ...]:
        """By objective, then fewer devices, less recompute, more headroom, and the axes."""
        rest = (self.devices_used, self.row["recompute"], self.peak_bytes, *(self.row[axis] for axis in AXES))
        return (float(comparable(num(self.objective))), *rest)


def comparable(objective: Num) -> Num:
    """The objective on a scale on which values that differ by rounding alone are equal."""
    with np.errstate(divide="ignore"):
        return np.round(np.log(objective) / ROUNDING)
