"""Which meshes can't fit at all, and the plan that comes nearest when none does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Bools, Ints, Num
from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.rules import legal_mask
from costmodel.table import AXES, PlanTable, layer_counts, stage_table
from planner.search.bounds import memory_bounds, rows_that_may_fit
from planner.search.choices import policies
from planner.search.device_bounds import RowBound
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


def unfit_meshes(
    request: SearchRequest, f: Facts, meshes: Columns, may_fit: Bools, usable: float, late: Callable[[], bool]
) -> Bools | None:
    """The meshes of which no plan by recipe fits into ``usable`` bytes; None when ``late`` became true in the middle.

    Args:
        may_fit: what a relaxation could not rule out.
    """
    unfit = ~may_fit
    for block in _blocks(np.flatnonzero(may_fit)):
        if late():
            return None
        beyond = _usually_leanest(request, f, _take(meshes, block), usable).lack > 0.0
        unfit[block] = beyond
        doubtful = block[beyond]
        if late():
            return None
        if len(doubtful):
            unfit[doubtful] = _leanest(request, f, _take(meshes, doubtful), usable, filtered=True).lack > 0.0
    return unfit


def nearest_plan(request: SearchRequest, f: Facts, meshes: Columns, late: Callable[[], bool]) -> PlanTable | None:
    """The plan that lacks the least memory of all, a table of one row; None when ``late`` became true in the middle."""
    usable = float(request.scenario.usable_bytes)
    lacks: list[Num] = []
    for block in _blocks(np.arange(len(meshes["tp"]))):
        if late():
            return None
        lacks.append(_usually_leanest(request, f, _take(meshes, block), usable).lack)
    order = np.argsort(np.concatenate(lacks), kind="stable")[:_NEAREST]
    found = _leanest(request, f, _take(meshes, order), usable)
    return found.plans.take(np.array([int(found.lack.argmin())]))


def _blocks(meshes: Ints) -> Iterator[Ints]:
    """In parts that leave time to look at the clock."""
    for start in range(0, len(meshes), _MESHES_IN_A_BLOCK):
        yield meshes[start : start + _MESHES_IN_A_BLOCK]


def _take(meshes: Columns, rows: Ints) -> Columns:
    return {axis: column[rows] for axis, column in meshes.items()}


def _usually_leanest(request: SearchRequest, f: Facts, meshes: Columns, usable: float) -> LeanestPlans:
    """Most recompute, everything sharded over all replicas, the plainest layout of the fewest chunks."""
    most = policies(request)[-1][0]
    lean_policies = [place for place, (recompute, _) in enumerate(policies(request)) if recompute == most]
    rows, of_row = _every_policy(request, meshes, lean_policies)
    high = legal_zero_stages(request)[-2:]
    lean = np.flatnonzero((rows["dp_replicate"] == 1) & np.isin(rows["zero_stage"], high))
    table, of_plan = expand(request, _take(rows, lean), leanest=True, every_layout=False)
    return _least_per_mesh(request, f, table, of_row[lean][of_plan], len(meshes["tp"]), usable)


def _leanest(
    request: SearchRequest, f: Facts, meshes: Columns, usable: float, *, filtered: bool = False
) -> LeanestPlans:
    """Every recompute policy, sharding and layout by recipe; ``filtered``: of what a relaxation can't rule out."""
    rows, of_row = _every_policy(request, meshes, range(len(policies(request))))
    if filtered:
        bounds = RowBound.of_memory(memory_bounds(request, f, rows))
        possible = np.flatnonzero(rows_that_may_fit(request, rows, bounds, usable))
        rows, of_row = _take(rows, possible), of_row[possible]
    layers, leading_dense = layer_counts(request.scenario)
    # With layers of one kind the fewest chunks keep the fewest activations; more chunks may mix two kinds better.
    uniform = leading_dense in (0, layers)
    table, of_plan = expand(request, rows, leanest=True, every_chunking=not uniform)
    return _least_per_mesh(request, f, table, of_row[of_plan], len(meshes["tp"]), usable)


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
    priced = predict(f, table, stage_table(request.scenario, table))
    lacks = priced.lack(f, usable)
    order = np.lexsort((priced.peak_bytes, lacks, mesh))
    which, first = np.unique(mesh[order], return_index=True)
    least = np.full(count, np.inf)
    least[which] = lacks[order][first]
    chosen = {axis: np.ones(count, dtype=np.int64) for axis in AXES}
    for axis in AXES:
        chosen[axis][which] = table[axis][order[first]]
    return LeanestPlans(lack=least, plans=PlanTable(columns=chosen))
