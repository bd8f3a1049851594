"""A plan with its price, and what orders plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.arrays import Num, num
from costmodel.plan_rows import Chunks, chunks_of_plan, encode, layout_of, plan_of, recomputes_some
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from costmodel.stages import Layout
from costmodel.table import AXES
from planner.search.space import MESH_AXES

ROUNDING = 1e-9
"""Relative difference of values that were computed along different paths and are meant to be equal."""


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A plan with its price: one row of a plan table, and what orders it.

    Attributes:
        chunks: layers of every chunk where they are not those of the row's layout.
        recomputed: layers of every device that run again where these are not all or none.
    """

    row: dict[str, int]
    step_time_s: float
    peak_bytes: float
    objective: float
    devices_used: int
    chunks: Chunks | None = None
    recomputed: tuple[int, ...] | None = None

    @classmethod
    def of_plan(cls, scenario: Scenario, plan: Plan, **price: float) -> Priced:
        """A whole plan as a row, with what of its layers no row says."""
        layout = layout_of(plan, scenario.model.num_layers)
        return cls(
            row=encode(scenario, plan, Layout.EVEN if layout is None else layout),
            devices_used=plan.devices_used,
            chunks=chunks_of_plan(plan) if layout is None else None,
            recomputed=plan.recomputed_layers_per_stage if recomputes_some(plan) else None,
            **price,
        )

    def plan(self, scenario: Scenario) -> Plan:
        """The whole plan."""
        return plan_of(scenario, self.row, self.chunks, self.recomputed)

    @property
    def family(self) -> tuple[int, ...]:
        """What makes it a different plan from another: the mesh, the micro-batch and the schedule."""
        return family_of(self.row)

    @property
    def order(self) -> tuple[Any, ...]:
        """By objective, then fewer devices, less recompute, more headroom, and the axes, layers last."""
        rest = (self.devices_used, self.row["recompute"], self.peak_bytes, *(self.row[axis] for axis in AXES))
        return (float(comparable(num(self.objective))), *rest, self.chunks or (), self.recomputed or ())


def family_of(row: Mapping[str, int]) -> tuple[int, ...]:
    """The axes in which plans of a list differ: the mesh, the micro-batch and the schedule."""
    return (*(row[axis] for axis in MESH_AXES), row["schedule"])


def comparable(objective: Num) -> Num:
    """The objective on a scale on which values that differ by rounding alone are equal."""
    with np.errstate(divide="ignore"):
        return np.round(np.log(objective) / ROUNDING)
