"""The CP-SAT master: mesh, micro-batch, recompute policy, sharding and schedule as variables.

It lists every combination whose relaxed step time, over all layouts that fit, is below a limit. Rules of the framework
are named constraints over the axes that they read. It is solved with one worker and a fixed seed for all solutions:
when the solver finishes, the list is complete, and that is the proof. Loading the tables looks at no clock and takes
more time per row the more rows there are, so many rows are given to it in blocks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from costmodel.arrays import Ints, Num, num
from costmodel.facts import Facts
from costmodel.rules import Rule
from costmodel.spec.plan import CP_COMM_TYPES, SCHEDULES
from costmodel.stages import Layout
from costmodel.table import PlanTable
from planner.search.choices import axes_read, holds
from planner.search.device_bounds import RowBound
from planner.search.lawful import rules_beyond_meshes
from planner.search.request import SearchRequest
from planner.search.space import ROW_AXES, Columns
from planner.search.stage_steps import StageSteps, stage_steps

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

DECISIONS: tuple[str, ...] = (*ROW_AXES, "vpp", "schedule")
_LOOK_EVERY_S = 0.02


@dataclass(frozen=True, kw_only=True)
class Enumeration:
    """What the master found.

    Attributes:
        decisions: columns of ``DECISIONS``, one row per solution, in lexicographic order.
        least_s: the relaxed step time of each.
        complete: whether the solver went through everything.
    """

    decisions: dict[str, Ints]
    least_s: Num
    complete: bool

    def __len__(self) -> int:
        return len(self.decisions["tp"])

    @classmethod
    def nothing(cls, *, complete: bool) -> Enumeration:
        """An empty list: nothing was left (complete), or there was no time to look."""
        decisions = {axis: np.zeros(0, dtype=np.int64) for axis in DECISIONS}
        return cls(decisions=decisions, least_s=np.zeros(0), complete=complete)

    def rows(self) -> Columns:
        """The distinct rows among the solutions, as columns of ``ROW_AXES``."""
        distinct = np.unique(np.stack([self.decisions[axis] for axis in ROW_AXES], axis=1), axis=0)
        return dict(zip(ROW_AXES, distinct.T, strict=True))

    def as_rows(self) -> list[list[int]]:
        """The solutions one by one, in the order of ``DECISIONS``."""
        return tuples_of(self.decisions)


def tuples_of(columns: Columns) -> list[list[int]]:
    """Rows in the order of ``DECISIONS``."""
    listed: list[list[int]] = np.stack([columns[axis] for axis in DECISIONS], axis=1).tolist()
    return listed


def decisions_of(rows: Columns, table: PlanTable, of_row: Ints) -> list[list[int]]:
    """What the master decides of each plan of a table that ``expand`` made of rows."""
    return tuples_of({**table.columns, "options": rows["options"][of_row]})


def enumerate_below(
    request: SearchRequest,
    f: Facts,
    rows: Columns,
    bounds: RowBound,
    limits: Num,
    usable: float,
    deadline: float,
    stopped: threading.Event | None = None,
) -> Enumeration:
    """All decisions on ``rows`` whose relaxed step time is below the row's limit and that may fit.

    Args:
        limits: seconds, per row, or ``(rows, schedules)``.
        deadline: ``time.monotonic()`` value at which to stop.
        stopped: stops the solver when it is set.
    """
    from ortools.sat.python import cp_model

    class Collector(cp_model.CpSolverSolutionCallback):
        """Keeps the decisions of every solution."""

        def __init__(self, variables: list[cp_model.IntVar]) -> None:
            super().__init__()
            self.variables = variables
            self.solutions: list[tuple[int, ...]] = []

        def on_solution_callback(self) -> None:
            self.solutions.append(tuple(map(self.Value, self.variables)))

    master = _Master(cp_model.CpModel(), request, f, rows, bounds, limits, usable)
    if not master.build():
        return Enumeration.nothing(complete=True)
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    # Its handler leaves the system's own behind, and the next Ctrl-C would end the process without a word.
    parameters.catch_sigint_signal = False
    parameters.random_seed = request.seed
    parameters.enumerate_all_solutions = True
    # Tables propagate by themselves; a linear relaxation only costs time here (1.3-2 times as long with it).
    parameters.linearization_level = 0
    # Presolve costs more than it saves here (up to twice the time), and looks at no clock while it expands the tables.
    parameters.cp_model_presolve = False
    parameters.max_time_in_seconds = max(deadline - time.monotonic(), 0.01)
    found = Collector([*master.decision_variables, master.variables["row"]])
    with _stopping(solver, stopped):
        status = solver.solve(master.model, found)
    columns = np.array(sorted(found.solutions), dtype=np.int64).reshape(-1, len(DECISIONS) + 1).T
    decisions = dict(zip(DECISIONS, columns, strict=False))
    return Enumeration(
        decisions=decisions,
        least_s=master.least_s(columns[-1], decisions),
        complete=status in (cp_model.OPTIMAL, cp_model.INFEASIBLE),
    )


@contextmanager
def _stopping(solver: cp_model.CpSolver, stopped: threading.Event | None) -> Iterator[None]:
    """Stop the solver from another thread as soon as ``stopped`` is set.

    The solver does not remember a stop from before it began, so it is told again until it has ended.
    """
    if stopped is None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            if stopped.is_set():
                solver.stop_search()

    watcher = threading.Thread(target=watch, name="stops the solver", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


class _Master:
    """The model under construction."""

    def __init__(
        self,
        model: cp_model.CpModel,
        request: SearchRequest,
        f: Facts,
        rows: Columns,
        bounds: RowBound,
        limits: Num,
        usable: float,
    ) -> None:
        self.model, self.request, self.f = model, request, f
        self.rows, self.bounds, self.limits, self.usable = rows, bounds, limits, usable
        self.variables: dict[str, cp_model.IntVar] = {}
        self.domains: dict[str, tuple[int, ...]] = {}
        self.steps: StageSteps

    @property
    def decision_variables(self) -> list[cp_model.IntVar]:
        return [self.variables[axis] for axis in DECISIONS]

    def build(self) -> bool:
        """The whole model; False where nothing is left to decide."""
        steps = stage_steps(self.request, self.f, self.rows, self.bounds, self.usable)
        limits = np.broadcast_to(self.limits.T, (len(SCHEDULES), len(self.limits)))[steps.schedule, steps.row]
        below = np.flatnonzero(np.isfinite(steps.step_time_s) & (steps.step_time_s <= limits))
        if not len(below):
            return False
        some = self.steps = steps.take(below)
        place = np.arange(len(self.rows["tp"]), dtype=np.int64)
        self._table("rows", {"row": place} | {axis: self.rows[axis] for axis in ROW_AXES})
        self._table("step_time_and_memory", {"row": some.row, "vpp": some.vpp, "schedule": some.schedule})
        decided = {axis: self.rows[axis][some.row] for axis in ROW_AXES} | {"vpp": some.vpp, "schedule": some.schedule}
        for rule in rules_beyond_meshes(self.request):
            self._add_rule(rule, decided)
        return True

    def least_s(self, row: Ints, decisions: Columns) -> Num:
        """The relaxed step times of decisions on rows of the model."""
        told = self.steps
        known = zip(told.row.tolist(), told.vpp.tolist(), told.schedule.tolist(), strict=True)
        of = dict(zip(known, told.step_time_s.tolist(), strict=True))
        asked = zip(row.tolist(), decisions["vpp"].tolist(), decisions["schedule"].tolist(), strict=True)
        return num([of[each] for each in asked])

    def _variable(self, name: str, values: Sequence[int] | Ints) -> cp_model.IntVar:
        from ortools.sat.python import cp_model

        distinct = tuple(sorted({int(value) for value in values}))
        self.domains[name] = distinct
        self.variables[name] = self.model.new_int_var_from_domain(cp_model.Domain.from_values(list(distinct)), name)
        return self.variables[name]

    def _table(self, name: str, columns: dict[str, Ints]) -> None:
        """One table constraint; columns that are new become variables."""
        for axis, values in columns.items():
            if axis not in self.variables:
                self._variable(axis, values)
        variables = [self.variables[axis] for axis in columns]
        tuples = np.stack(list(columns.values()), axis=1).tolist()
        self.model.add_allowed_assignments(variables, tuples).with_name(name)

    def _add_rule(self, rule: Rule, decided: Columns) -> None:
        """The rule as a table over the decisions that it reads; what is decided later counts at its best.

        One that every decision of the other tables passes cuts nothing.
        """
        later = {"layout": [int(layout) for layout in Layout], "cp_comm_type": list(range(len(CP_COMM_TYPES)))}
        read = axes_read(self.request, rule)
        now, free = [axis for axis in read if axis in decided], [axis for axis in read if axis not in decided]
        columns = {axis: decided[axis] for axis in now}
        passes = np.zeros(len(decided["tp"]), dtype=np.bool_)
        for chosen in product(*(later[axis] for axis in free)):
            values = {axis: np.full(len(passes), value) for axis, value in zip(free, chosen, strict=True)}
            passes |= np.broadcast_to(holds(self.request, rule, columns | values), passes.shape)
        if not passes.all():
            allowed = np.unique(np.stack([columns[axis][passes] for axis in now], axis=1), axis=0).tolist()
            self.model.add_allowed_assignments([self.variables[axis] for axis in now], allowed).with_name(rule.name)
