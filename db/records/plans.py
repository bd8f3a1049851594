"""Plans, whole and as lists show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from db.records.values import Json

PLAN_SORTS = ("step_time_s", "tokens_per_s_per_device", "mfu", "peak_bytes", "created_at")
"""What a list of plans may be sorted by; ``-`` in front turns it round."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan with what the cost model says of it.

    Attributes:
        plan: flat, as ``plan.json`` holds it.
        prediction: as ``suggest --json`` prints it.
    """

    id: str
    scenario_id: str
    calibration_id: str
    cost_model_version: str
    plan: Json
    prediction: Json
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class ListedPlan:
    """A plan as lists show it.

    Attributes:
        global_batch_size: the plan's own, as its axes say it.
        axes: the mesh, micro-batch, schedule and policies by their names; no layers.
        figures: ``step_time_s``, ``tokens_per_s_per_device``, ``mfu``, ``peak_bytes``.
    """

    id: str
    scenario_id: str
    calibration_id: str
    cost_model_version: str
    model: str
    cluster: str
    accelerator: str
    devices: int
    global_batch_size: int
    seq_len: int
    precision: str
    framework: str
    axes: Json
    figures: Json
    created_at: datetime


class PlanPlace(NamedTuple):
    """Where a search ranked a plan.

    Attributes:
        around: ids of plans by their rank: the first, this one, and those next to it.
    """

    search_id: str
    rank: int
    around: dict[int, str]


@dataclass(frozen=True, kw_only=True)
class PlanFilter:
    """What plans to list; None does not filter. ``axes`` are equalities on columns of ``plans``, ``tp`` say."""

    scenario_id: str | None = None
    search_id: str | None = None
    calibration_id: str | None = None
    model: str | None = None
    cluster: str | None = None
    accelerator: str | None = None
    framework: str | None = None
    precision: str | None = None
    devices: int | None = None
    max_peak_bytes: int | None = None
    axes: Mapping[str, int | str] = field(default_factory=dict)
