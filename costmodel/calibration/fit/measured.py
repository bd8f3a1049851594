"""Runs that were measured, laid out so that thousands of them are priced again and again under changing parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from costmodel.arrays import Bools, Ints, Num
from costmodel.calibration.calibration import Calibration
from costmodel.calibration.fit.tree import Case
from costmodel.calibration.parameters import Parameters
from costmodel.facts import Facts
from costmodel.fidelity.exclusions import study_of
from costmodel.fidelity.observed import Observed
from costmodel.predict import memory_by_stage, step_times
from costmodel.runs.cases import Case as RunCase
from costmodel.runs.cases import Unpriced, cases_of
from costmodel.runs.columns import Run
from costmodel.runs.predictions import MemoryFigure, chosen_rows, memory_figure_of
from costmodel.scenario import Scenario
from costmodel.spec.cluster import ClusterSpec
from costmodel.table import PlanTable, StageTable, stage_table_of

_GIB = 2**30


Figure = Literal["time", "memory"]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One plan per run, and one figure that was measured of it.

    Attributes:
        cases: what parameters are keyed by, per run.
        studies: who measured, per run: errors of one study have much in common.
        ids, scenarios: of the runs, and what each was asked to do.
        logs: natural log of the figure: seconds of a step, or bytes of what the run's source counts as memory.
        counted: which bytes that is.
    """

    figure: Figure
    cases: tuple[Case, ...]
    studies: NDArray[np.str_]
    groups: NDArray[np.str_]
    ids: tuple[str, ...]
    scenarios: tuple[Scenario, ...]
    logs: Num
    counted: tuple[MemoryFigure, ...]
    facts: Facts
    table: PlanTable
    stages: StageTable

    def __len__(self) -> int:
        return len(self.cases)

    def take(self, rows: Ints) -> Measured:
        """The chosen runs, in the order given; one may come several times."""
        chosen = rows.tolist()
        return Measured(
            figure=self.figure,
            cases=tuple(self.cases[row] for row in chosen),
            studies=self.studies[rows],
            groups=self.groups[rows],
            ids=tuple(self.ids[row] for row in chosen),
            scenarios=tuple(self.scenarios[row] for row in chosen),
            logs=self.logs[rows],
            counted=tuple(self.counted[row] for row in chosen),
            facts=self.facts.take(rows),
            table=self.table.take(rows),
            stages=self.stages.take(rows),
        )

    def predicted(self, values: Mapping[str, Num]) -> Num:
        """What the figures would be by the cost model, as logs, with a value of every parameter for every run."""
        cal = Parameters(**values)
        facts = replace(self.facts, cal=cal)
        if self.figure == "time":
            return np.log(step_times(facts, self.table, self.stages))
        by_stage = memory_by_stage(facts, self.table, self.stages)
        first, reserved, outside = (
            np.array([getattr(counted, name) for counted in self.counted], dtype=bool)
            for name in ("first_stage", "reserved", "outside")
        )
        memory = np.where(first, by_stage[:, 0], by_stage.max(axis=-1))
        memory = np.where(reserved, memory * cal.reserved_over_allocated, memory)
        memory = np.where(outside, memory + cal.context_bytes, memory)
        return np.log(memory)


CasesOf = Callable[[tuple[Run, ...], Calibration, ClusterSpec | None], Sequence[RunCase | Unpriced]]
"""What makes runs cases: ``cases_of``, unless somebody knows more of them than rows can say."""


def measured_in(
    runs: Sequence[Run],
    calibration: Calibration,
    known: ClusterSpec | None = None,
    as_cases: CasesOf = cases_of,
) -> tuple[Measured, ...]:
    """The runs whose time was measured, and those whose memory was, as far as they can be priced; none that is empty.

    A plan that a run leaves open is what ``calibration`` has for the fastest that fits; ``known`` as in ``cases_of``.
    """
    observed = Observed.of(runs)
    cases = dict(enumerate(as_cases(tuple(runs), calibration, known)))
    priced = {index: case for index, case in cases.items() if isinstance(case, RunCase)}
    found = (
        _measured("time", priced, observed.scorable, observed.step_time_s),
        _measured("memory", priced, observed.memory_scorable, observed.peak_mem_gb * _GIB),
    )
    return tuple(measured for measured in found if measured is not None)


def _measured(figure: Figure, cases: Mapping[int, RunCase], judged: Bools, values: Num) -> Measured | None:
    index = [position for position in cases if judged[position]]
    if not index:
        return None
    chosen = [cases[position] for position in index]
    scenarios = [case.scenario for case in chosen]
    table = PlanTable.of_rows(chosen_rows(chosen))
    return Measured(
        figure=figure,
        cases=tuple(Case.of(scenario) for scenario in scenarios),
        studies=np.array([study_of(case.run) for case in chosen], dtype=np.str_),
        groups=np.array([case.run.group for case in chosen], dtype=np.str_),
        ids=tuple(case.run.id for case in chosen),
        scenarios=tuple(scenarios),
        logs=np.log(values[index]),
        counted=tuple(memory_figure_of(case) for case in chosen),
        facts=Facts.columns(scenarios),
        table=table,
        stages=stage_table_of(scenarios, np.arange(len(chosen)), table),
    )
