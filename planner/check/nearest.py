"""The legal plan that fits and is closest to a given one, over the whole space that ``suggest`` searches.

Meshes are taken in the order of their own distance, which no choice inside the mesh can undercut: the search stops
where the next mesh is farther than the best plan found. Besides the layouts of the search, the given plan's own layers
are kept wherever its pipeline is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from costmodel.arrays import Bools, Ints, Num
from costmodel.checker import check_plan
from costmodel.facts import Facts
from costmodel.plan_rows import Chunks, plan_of
from costmodel.predict import predict
from costmodel.recompute_modules import NOT_PRICED
from costmodel.rules import rules_for
from costmodel.rules.rule import as_columns
from costmodel.schedules import placement_of, placements
from costmodel.spec.options import BY_NAME, CHOICE_NAMES, MODULES, OPTION_NAMES
from costmodel.spec.plan import SCHEDULES, Plan
from costmodel.stages import Placement, stages_of_chunks
from costmodel.table import AXES, PlanTable, StageTable, layer_counts, stage_table, virtual_stages
from costmodel.usual_options import usual_codes
from planner.check.distance import OWN_LAYERS, Reference, distances, steps_of
from planner.search.bounds import memory_bounds
from planner.search.choices import option_columns, policies
from planner.search.constraints import Condition, Range
from planner.search.device_bounds import RowBound
from planner.search.request import SearchRequest
from planner.search.rows import expand, rows_of
from planner.search.space import MESH_AXES, Columns, domains, mesh_candidates
from planner.search.stage_steps import rows_that_may_fit

_FIRST_MESHES, _MESHES_AT_ONCE = 32, 2048
_ROWS_AT_ONCE = 256
# Rows have no CP exchange yet.
_OF_ROWS = tuple(name for name in CHOICE_NAMES if "cp_comm_type" not in BY_NAME[name].reads)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A plan and how far it is: axes that differ, doublings, and the steps that they sum to; then its step time."""

    plan: Plan
    axes: int
    doublings: float
    steps: float
    step_time_s: float

    @property
    def order(self) -> tuple[float, float]:
        return self.steps, self.step_time_s


@dataclass(frozen=True, kw_only=True)
class NearestSearch:
    """What is searched for.

    Attributes:
        own_layers: layers of every chunk of the given plan, when these are legal and no layout has them.
        deadline: of ``time.monotonic``.
    """

    request: SearchRequest
    facts: Facts
    reference: Reference
    own_layers: Chunks | None
    deadline: float

    def run(self) -> tuple[Found | None, bool]:
        """The nearest plan, and whether the search came to its end."""
        request = self.widened
        meshes = _legal_meshes(request)
        steps = steps_of(*distances(self.reference, meshes))
        order = np.argsort(steps, kind="stable")
        best: Found | None = None
        for block in _growing(order):
            if best is not None and steps[block[0]] > best.steps:
                break
            for rows, least in self._rows(request, meshes, block):
                if best is not None and least > best.steps:
                    break
                if time.monotonic() > self.deadline:
                    return best, False
                best = self._better(request, rows, best)
        return best, True

    @cached_property
    def outside(self) -> dict[str, int]:
        """The given plan's own values that the default space leaves out, as far as they can be had at all."""
        row, usual = self.reference.row, domains(self.request)
        devices = self.request.scenario.devices
        found = {axis: row[axis] for axis in ("tp", "cp", "pp", "ep") if row[axis] not in getattr(usual, axis)}
        if row["etp"] not in (1, row["tp"]):
            found["etp"] = row["etp"]
        most = {"pp": min(devices, self.request.scenario.model.num_layers)}
        return {axis: value for axis, value in found.items() if value <= most.get(axis, devices)}

    @cached_property
    def widened(self) -> SearchRequest:
        """The request with the user's pins, and with the given plan's own values added to the space."""
        row, asked, scenario = self.reference.row, self.request.constraints, self.request.scenario
        added = dict(self.outside)
        if scenario.workload.global_batch_size % row["micro_batch_size"] == 0:
            added["micro_batch_size"] = row["micro_batch_size"]
        if row["vpp"] <= scenario.model.num_layers + 2:
            added["vpp"] = row["vpp"]
        if row["zero_stage"] > 0 and row["dp_shard"] <= scenario.devices:
            added["dp_shard"] = row["dp_shard"]
        conditions = (
            Condition(axis=axis, values=frozenset([value]), ranges=(Range(low=1, high=None),))
            for axis, value in added.items()
        )
        return replace(self.request, constraints=replace(asked, pins=(*asked.pins, *conditions)), also=self.own_options)

    @property
    def own_options(self) -> tuple[tuple[str, int], ...]:
        """Options of the given plan that are not the usual ones, and its modules: plans with them are nearer.

        Modules that have no price are left out: no plan with them can be offered.
        """
        row = self.reference.row
        usual = usual_codes(self.request.scenario, as_columns(row))
        # Plans of the space have sequence parallelism, and what overlaps with it.
        follows = () if self.reference.sequence_parallel else ("tp_overlap",)
        names = (name for name in OPTION_NAMES if name not in follows)
        own = tuple((name, row[name]) for name in names if row[name] != int(usual[name]))
        modules = row["recompute_modules"]
        return (*own, (MODULES.name, modules)) if modules and not set(MODULES.decode(modules)) & NOT_PRICED else own

    @property
    def _placement(self) -> Placement:
        return placement_of(SCHEDULES[self.reference.row["schedule"]])

    def _rows(self, request: SearchRequest, meshes: Columns, block: Ints) -> Iterator[tuple[Columns, float]]:
        """Rows of some meshes that may fit, nearest first, a few at a time, with the distance of the first."""
        places = np.arange(len(policies(request)))
        rows, _ = rows_of(request, meshes, np.repeat(places, len(block)), np.tile(block, len(places)))
        rows = _take(rows, np.flatnonzero(self._may_fit(request, rows)))
        steps = steps_of(*distances(self.reference, rows | option_columns(request, rows, _OF_ROWS)))
        order = np.argsort(steps, kind="stable")
        for start in range(0, len(order), _ROWS_AT_ONCE):
            some = order[start : start + _ROWS_AT_ONCE]
            yield _take(rows, some), float(steps[some[0]])

    def _may_fit(self, request: SearchRequest, rows: Columns) -> Bools:
        """The rows that no relaxation of memory rules out; layers of the plan's own are not judged by it."""
        possible = np.asarray((rows["pp"] == self.reference.row["pp"]) & (self.own_layers is not None))
        bounds = RowBound.of_memory(memory_bounds(request, self.facts, rows))
        usable = float(request.scenario.usable_bytes)
        at = np.flatnonzero(~possible)
        possible[at] = rows_that_may_fit(request, _take(rows, at), bounds.take(at), usable)
        return possible

    def _better(self, request: SearchRequest, rows: Columns, best: Found | None) -> Found | None:
        """The nearest plan of these rows that is legal and fits, where it is nearer than ``best``."""
        scenario = request.scenario
        table, _ = expand(request, rows)
        table, own = self._with_own_layers(table)
        columns = {**table.columns, "layout": np.where(own, OWN_LAYERS, table["layout"])}
        axes, doublings = distances(self.reference, columns)
        steps = steps_of(axes, doublings)
        kept = np.flatnonzero(_legal(request, table, own) & (steps <= (inf if best is None else best.steps)))
        if not len(kept):
            return best
        table, own, steps = table.take(kept), own[kept], steps[kept]
        step, peak = self._priced(request, table, own)
        ties = [table[axis] for axis in reversed(AXES)]
        for index in np.lexsort((*ties, step, steps)).tolist():
            found = Found(
                axes=int(axes[kept[index]]),
                doublings=float(doublings[kept[index]]),
                steps=float(steps[index]),
                step_time_s=float(step[index]),
                plan=plan_of(scenario, table.row(index), self.own_layers if own[index] else None),
            )
            if best is not None and found.order >= best.order:
                return best
            if peak[index] <= scenario.usable_bytes and not check_plan(found.plan, scenario):
                return found
        return best

    def _with_own_layers(self, table: PlanTable) -> tuple[PlanTable, Bools]:
        """The table, and the plans of the given pipeline once more with the given layers: which ones says the mask."""
        count = len(table)
        if self.own_layers is None:
            return table, np.zeros(count, dtype=np.bool_)
        same = (table["pp"] == self.reference.row["pp"]) & (table["vpp"] == self.reference.row["vpp"])
        same &= placements(table["schedule"]) == self._placement
        if same.any():
            same &= table["layout"] == table["layout"][same].min()
        both = PlanTable.concatenate([table, table.take(same)])
        return both, np.arange(len(both)) >= count

    def _priced(self, request: SearchRequest, table: PlanTable, own: Bools) -> tuple[Num, Num]:
        """(step time, peak bytes) of every plan."""
        step, peak = np.empty(len(table)), np.empty(len(table))
        for at in (np.flatnonzero(~own), np.flatnonzero(own)):
            if not len(at):
                continue
            some = table.take(at)
            if self.own_layers is not None and own[at[0]]:
                _, dense_layers = layer_counts(request.scenario)
                kept = StageTable.of([stages_of_chunks(self.own_layers, dense_layers, self._placement)])
                kept = kept.with_chunks(virtual_stages([self.own_layers], [dense_layers]))
                stages = kept.take(np.zeros(len(at), dtype=np.int64))
            else:
                stages = stage_table(request.scenario, some)
            priced = predict(self.facts, some, stages)
            step[at], peak[at] = priced.step_time_s, priced.device_bytes(self.facts)
        return step, peak


def _growing(order: Ints) -> Iterator[Ints]:
    """Blocks, small ones first: what is near is often found among the nearest few."""
    start, size = 0, _FIRST_MESHES
    while start < len(order):
        yield order[start : start + size]
        start, size = start + size, min(2 * size, _MESHES_AT_ONCE)


def _take(rows: Columns, at: Ints) -> Columns:
    return {axis: column[at] for axis, column in rows.items()}


def _legal_meshes(request: SearchRequest) -> Columns:
    """Candidates that no rule on the mesh alone refuses."""
    meshes = mesh_candidates(request)
    legal = np.ones(len(meshes["tp"]), dtype=np.bool_)
    for rule in rules_for(request.scenario.framework):
        if set(rule.axes) <= set(MESH_AXES):
            legal &= rule.holds(request.scenario, meshes)
    return _take(meshes, np.flatnonzero(legal))


def _legal(request: SearchRequest, table: PlanTable, own: Bools) -> Bools:
    """The plans that no rule refuses; for layers of the plan's own, no rule but those on layouts."""
    legal = np.ones(len(table), dtype=np.bool_)
    for rule in rules_for(request.scenario.framework):
        holds = np.broadcast_to(rule.holds(request.scenario, table.columns), legal.shape)
        legal &= holds | (own if "layout" in rule.axes else False)
    return legal
