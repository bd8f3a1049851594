"""The plan that comes nearest when none fits, and what plans that need little have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Ints, Num
from costmodel.facts import Facts
from costmodel.predict import predict_needs
from costmodel.rules import legal_mask
from costmodel.table import AXES, PlanTable, layer_counts, stage_table
from planner.search.choices import policies
from planner.search.request import SearchRequest
from planner.search.rows import expand, rows_of
from planner.search.space import Columns, legal_zero_stages

_NEAREST = 50
_MESHES_IN_A_BLOCK = 20_000


@dataclass(frozen=True, kw_only=True)
class LeanestPlans:
    """The plan of each mesh that lacks the least memory.

    Attributes:
        lack: as in ``PredictionTable.lack``; infinite where no plan is legal.
    """

    lack: Num
    plans: PlanTable


def nearest_plan(request: SearchRequest, f: Facts, meshes: Columns, late: Callable[[], bool]) -> PlanTable | None:
    """The plan that lacks the least memory of all, a table of one row; None when ``late`` became true in the middle."""
    usable = float(request.scenario.usable_bytes)
    lacks: list[Num] = []
    for block in blocks(np.arange(len(meshes["tp"]))):
        if late():
            return None
        lacks.append(_usually_leanest(request, f, take(meshes, block), usable).lack)
    order = np.argsort(np.concatenate(lacks), kind="stable")[:_NEAREST]
    found = _leanest(request, f, take(meshes, order), usable)
    return found.plans.take(np.array([int(found.lack.argmin())]))


def blocks(meshes: Ints) -> Iterator[Ints]:
    """In parts that leave time to look at the clock."""
    for start in range(0, len(meshes), _MESHES_IN_A_BLOCK):
        yield meshes[start : start + _MESHES_IN_A_BLOCK]


def take(meshes: Columns, rows: Ints) -> Columns:
    """The chosen meshes or rows."""
    return {axis: column[rows] for axis, column in meshes.items()}


def _usually_leanest(request: SearchRequest, f: Facts, meshes: Columns, usable: float) -> LeanestPlans:
    """The plainest layout of the fewest chunks of what usually needs the least."""
    rows, of_row = lean_rows(request, meshes)
    table, of_plan = expand(request, rows, leanest=True, every_layout=False)
    return _least_per_mesh(request, f, table, of_row[of_plan], len(meshes["tp"]), usable)


def lean_rows(request: SearchRequest, meshes: Columns) -> tuple[Columns, Ints]:
    """Most recompute, everything sharded over all replicas; and the mesh of each row."""
    most = policies(request)[-1][0]
    lean_policies = [place for place, (recompute, _) in enumerate(policies(request)) if recompute == most]
    rows, of_row = _every_policy(request, meshes, lean_policies)
    high = legal_zero_stages(request)[-2:]
    lean = np.flatnonzero((rows["dp_replicate"] == 1) & np.isin(rows["zero_stage"], high))
    return take(rows, lean), of_row[lean]


def _leanest(request: SearchRequest, f: Facts, meshes: Columns, usable: float) -> LeanestPlans:
    """Every recompute policy, sharding and layout by recipe."""
    rows, of_row = _every_policy(request, meshes, range(len(policies(request))))
    table, of_plan = in_any_layout(request, rows)
    return _least_per_mesh(request, f, table, of_row[of_plan], len(meshes["tp"]), usable)


def in_any_layout(request: SearchRequest, rows: Columns) -> tuple[PlanTable, Ints]:
    """Rows with every layout by recipe, of the chunks that may need the least; and the row of each plan."""
    layers, leading_dense = layer_counts(request.scenario)
    # With layers of one kind the fewest chunks keep the fewest activations; more chunks may mix two kinds better.
    uniform = leading_dense in (0, layers)
    return expand(request, rows, leanest=True, every_chunking=not uniform)


def _every_policy(request: SearchRequest, meshes: Columns, places: Sequence[int]) -> tuple[Columns, Ints]:
    """Rows of every mesh under each of some policies, and the mesh of each row."""
    count = len(meshes["tp"])
    mesh = np.tile(np.arange(count), len(places))
    rows, of_pair = rows_of(request, meshes, np.repeat(np.array(places, dtype=np.int64), count), mesh)
    return rows, mesh[of_pair]


def _least_per_mesh(
    request: SearchRequest, f: Facts, table: PlanTable, mesh: Ints, count: int, usable: float
) -> LeanestPlans:
    legal = np.flatnonzero(legal_mask(request.scenario, table))
    table, mesh = table.take(legal), mesh[legal]
    priced = predict_needs(f, table, stage_table(request.scenario, table, chunks=False))
    lacks = priced.lack(f, usable)
    order = np.lexsort((priced.peak_bytes, lacks, mesh))
    which, first = np.unique(mesh[order], return_index=True)
    least = np.full(count, np.inf)
    least[which] = lacks[order][first]
    chosen = {axis: np.ones(count, dtype=np.int64) for axis in AXES}
    for axis in AXES:
        chosen[axis][which] = table[axis][order[first]]
    return LeanestPlans(lack=least, plans=PlanTable(columns=chosen))
