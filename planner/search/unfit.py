"""Which meshes have no plan by recipe that fits: what ``eliminated.memory`` counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from costmodel.arrays import Bools, Ints
from costmodel.facts import Facts
from costmodel.predict import predict_needs
from costmodel.rules import legal_mask
from costmodel.table import PlanTable, stage_table
from planner.search.bounds import leanest_stages, memory_bounds, with_inner
from planner.search.choices import policies, policy_columns
from planner.search.device_bounds import RowBound
from planner.search.leanest import blocks, in_any_layout, lean_rows, take
from planner.search.request import SearchRequest
from planner.search.rows import expand, rows_of
from planner.search.space import Columns
from planner.search.stage_steps import rows_that_may_fit, stages_that_may_fit


def unfit_meshes(
    request: SearchRequest, f: Facts, meshes: Columns, usable: float, late: Callable[[], bool]
) -> Bools | None:
    """The meshes of which no plan by recipe fits into ``usable`` bytes; None when ``late`` became true meanwhile."""
    unfit = np.ones(len(meshes["tp"]), dtype=np.bool_)
    for block in blocks(np.arange(len(unfit))):
        if late():
            return None
        unfit[block] = ~_fits_leanest(request, f, take(meshes, block), usable)
        doubtful = block[unfit[block]]
        if late():
            return None
        if len(doubtful):
            unfit[doubtful] = ~_fits_somehow(request, f, take(meshes, doubtful), usable)
    return unfit


def _fits_leanest(request: SearchRequest, f: Facts, meshes: Columns, usable: float) -> Bools:
    """Whether the plan fits that usually needs the least, with everything sharded at the highest ZeRO stage."""
    rows, of_row = lean_rows(request, meshes)
    order = np.lexsort((-rows["zero_stage"], of_row))
    _, first = np.unique(of_row[order], return_index=True)
    return _fit_plainest(request, f, take(rows, order[first]), of_row[order[first]], len(meshes["tp"]), usable)


def _fits_somehow(request: SearchRequest, f: Facts, meshes: Columns, usable: float) -> Bools:
    """Whether any plan by recipe fits: of what a relaxation can't rule out the plainest layouts, then all."""
    count = len(meshes["tp"])
    rows, of_row = _possible_rows(request, f, meshes, usable)
    found = _fit_plainest(request, f, rows, of_row, count, usable)
    left = np.flatnonzero(~found[of_row])
    rows, of_row = take(rows, left), of_row[left]
    table, of_plan = in_any_layout(request, rows)
    bounds = RowBound.of_memory(memory_bounds(request, f, rows))
    possible = stages_that_may_fit(request, rows, bounds, usable)
    at = np.flatnonzero(possible[of_plan, table["vpp"], table["schedule"]])
    return found | _fit(request, f, table.take(at), of_row[of_plan[at]], count, usable)


def _possible_rows(request: SearchRequest, f: Facts, meshes: Columns, usable: float) -> tuple[Columns, Ints]:
    """What a relaxation can't rule out: meshes under their policies first, then how they are sharded."""
    place, mesh = (index.ravel() for index in np.indices((len(policies(request)), len(meshes["tp"]))))
    possible = np.zeros(len(mesh), dtype=np.bool_)
    for zero in leanest_stages(request):
        left = np.flatnonzero(~possible)
        pairs = with_inner(take(meshes, mesh[left]), policy=policy_columns(request, place[left]), zero_stage=zero)
        possible[left] = _may_fit(request, f, pairs, usable)
    place, mesh = place[possible], mesh[possible]
    rows, of_pair = rows_of(request, meshes, place, mesh)
    chosen = np.flatnonzero(_may_fit(request, f, rows, usable))
    return take(rows, chosen), mesh[of_pair[chosen]]


def _may_fit(request: SearchRequest, f: Facts, rows: Columns, usable: float) -> Bools:
    return rows_that_may_fit(request, rows, RowBound.of_memory(memory_bounds(request, f, rows)), usable)


def _fit_plainest(request: SearchRequest, f: Facts, rows: Columns, of_row: Ints, count: int, usable: float) -> Bools:
    """Of rows with the plainest layout of the fewest chunks."""
    table, of_plan = expand(request, rows, leanest=True, every_layout=False)
    return _fit(request, f, table, of_row[of_plan], count, usable)


def _fit(request: SearchRequest, f: Facts, table: PlanTable, mesh: Ints, count: int, usable: float) -> Bools:
    """Whether some plan of a table is legal and fits, by mesh."""
    legal = np.flatnonzero(legal_mask(request.scenario, table))
    some = table.take(legal)
    fitting = predict_needs(f, some, stage_table(request.scenario, some, chunks=False)).lack(f, usable) <= 0.0
    found = np.zeros(count, dtype=np.bool_)
    found[mesh[legal[fitting]]] = True
    return found
