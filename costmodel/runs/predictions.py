"""Predictions for runs: all candidates of all runs in one table, and the candidate that stands for each run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from costmodel.arrays import Ints, Num, num
from costmodel.beyond_layers import row_beyond_layers
from costmodel.calibration.calibration import Calibration, load_calibration
from costmodel.calibration.ranges import farthest
from costmodel.certainty import calibrated_on, certainty_of, falls_back, interval_of
from costmodel.facts import Facts
from costmodel.layers import total
from costmodel.predict import PredictionTable, predict_stages
from costmodel.runs import words
from costmodel.runs.cases import Case, Unpriced, cases_of
from costmodel.runs.columns import Run
from costmodel.runs.plans import PlanRow
from costmodel.runs.prediction import RunPrediction
from costmodel.scenario import Scenario
from costmodel.table import PlanTable, StageTable, stage_table_of

_GIB = 2**30
_STAGES_AT_ONCE = 50_000


@dataclass(frozen=True, kw_only=True)
class _Priced:
    """Per candidate, aligned with the table of all candidates.

    Attributes:
        first_bytes, peak_bytes: allocated bytes of the first stage, and of the fullest.
        host_bytes: bytes of what is offloaded, in the memory of one node.
        lack: what is needed beyond the memory of a device and of a node, over what there is; 0 where both have room.
    """

    step_time_s: Num
    first_bytes: Num
    peak_bytes: Num
    host_bytes: Num
    lack: Num


def predict_runs(runs: Sequence[Run], calibration: Calibration | None = None) -> list[RunPrediction]:
    """One prediction per run, in order. A run that can't be expressed keeps its id and says why."""
    found = cases_of(tuple(runs), calibration or load_calibration())
    # Runs that ask the same are priced once: a file without plan columns is one question, thousands of times.
    distinct: dict[tuple[object, ...], int] = {}
    cases: list[Case] = []
    for case in found:
        if isinstance(case, Case) and case.question not in distinct:
            distinct[case.question] = len(cases)
            cases.append(case)
    if not cases:
        return [_unpriced(case) for case in found if isinstance(case, Unpriced)]
    priced = _price(cases)
    starts = np.cumsum([0, *(len(case.rows) for case in cases)])
    return [
        _unpriced(case)
        if isinstance(case, Unpriced)
        else _prediction(case, priced, int(starts[distinct[case.question]]))
        for case in found
    ]


def _unpriced(case: Unpriced) -> RunPrediction:
    return RunPrediction(id=case.run.id, reason=case.reason)


def _price(cases: Sequence[Case]) -> _Priced:
    """All candidates of all cases, block by block, since a block holds every part of every stage."""
    blocks = [_price_block(block) for block in _blocks(cases)]
    names = [field.name for field in fields(_Priced)]
    return _Priced(**{name: np.concatenate([getattr(block, name) for block in blocks]) for name in names})


def _blocks(cases: Sequence[Case]) -> Iterator[Sequence[Case]]:
    """Cases whose candidates have at most so many stages together, as far as one case has no more."""
    start, cells = 0, 0
    for position, case in enumerate(cases):
        more = sum(row["pp"] for row in case.rows)
        if position > start and cells + more > _STAGES_AT_ONCE:
            yield cases[start:position]
            start, cells = position, 0
        cells += more
    yield cases[start:]


def _price_block(cases: Sequence[Case]) -> _Priced:
    """Candidates as columns: facts once per distinct scenario."""
    scenarios: list[Scenario] = []
    number: dict[tuple[object, ...], int] = {}
    which: list[int] = []
    for case in cases:
        if case.key not in number:
            number[case.key] = len(scenarios)
            scenarios.append(case.scenario)
        which += [number[case.key]] * len(case.rows)
    index: Ints = np.array(which, dtype=np.int64)
    facts = Facts.columns(scenarios).take(index)
    table = PlanTable.of_rows([row for case in cases for row in case.rows])
    stages: StageTable = stage_table_of(scenarios, index, table)
    full = predict_stages(facts, table, stages)
    needed = full
    if any(case.memory_axes for case in cases):
        counted = PlanTable.of_rows([{**row, **case.memory_axes} for case in cases for row in case.rows])
        needed = predict_stages(facts, counted, stages)
    usable = num([scenario.usable_bytes for scenario in scenarios])[index]
    needs = PredictionTable(step_time_s=full.step_time_s, peak_bytes=needed.peak_bytes, host_bytes=needed.host_bytes)
    return _Priced(
        step_time_s=full.step_time_s,
        first_bytes=total(needed.memory)[:, 0],
        peak_bytes=needed.peak_bytes,
        host_bytes=needed.host_bytes,
        lack=needs.lack(facts, usable),
    )


def chosen_rows(cases: Sequence[Case]) -> list[PlanRow]:
    """The candidate that stands for each run."""
    priced = _price(cases)
    starts = np.cumsum([0, *(len(case.rows) for case in cases)]).tolist()
    return [case.rows[_choice(case, priced, start)[0]] for case, start in zip(cases, starts, strict=False)]


def _choice(case: Case, priced: _Priced, start: int) -> tuple[int, bool]:
    """(the fastest candidate that fits or, where none does, the leanest; whether it fits)."""
    rows = slice(start, start + len(case.rows))
    step, lack = priced.step_time_s[rows], priced.lack[rows]
    fits = lack == 0.0
    feasible = bool(fits.any())
    return int(np.where(fits, step, np.inf).argmin()) if feasible else int(lack.argmin()), feasible


def _prediction(case: Case, priced: _Priced, start: int) -> RunPrediction:
    chosen, feasible = _choice(case, priced, start)
    rows = slice(start, start + len(case.rows))
    step, peak = priced.step_time_s[rows], priced.peak_bytes[rows]
    row = case.rows[chosen]
    sure = certainty_of(case.scenario, row)
    seconds, shown = (
        float(step[chosen]),
        _shown_bytes(case, float(priced.first_bytes[start + chosen]), float(peak[chosen])),
    )
    low, high = interval_of(seconds, sure.time_error)
    least, most = interval_of(shown / _GIB, sure.memory_error)
    notes = [*case.notes, *words.memory_figure_of(case.run.mem_kind).notes, *row_beyond_layers(case.scenario, row)]
    if falls_back(case.scenario):
        notes.append(f"rests on {calibrated_on(case.scenario).text}")
    if sure.beyond:
        notes.append(f"beyond the calibrated range: {', '.join(entry.text for entry in sure.beyond)}")
    notes += _short(case.scenario, float(peak[chosen]), float(priced.host_bytes[rows][chosen]))
    return RunPrediction(
        id=case.run.id,
        feasible=feasible,
        step_time_s=seconds,
        step_time_low_s=low,
        step_time_high_s=high,
        peak_mem_gb=shown / _GIB,
        peak_mem_low_gb=least,
        peak_mem_high_gb=most,
        provenance=sure.provenance,
        doublings_beyond=farthest(sure.beyond),
        reason="; ".join(notes),
    )


def _short(scenario: Scenario, peak: float, on_a_node: float) -> Iterator[str]:
    """Which memory the plan does not fit into: what it needs, and what there is."""
    usable, cluster = scenario.usable_bytes, scenario.cluster
    there = cluster.host_memory_bytes_per_node
    if peak > usable:
        yield f"needs {peak / _GIB:.1f} GiB on its fullest stage, usable are {usable / _GIB:.1f}"
    if there is not None and on_a_node > there:
        yield (
            f"what is offloaded takes {on_a_node / _GIB:.1f} GiB on a node, "
            f"a node of {cluster.name} has {there / _GIB:.1f}"
        )


@dataclass(frozen=True, kw_only=True)
class MemoryFigure:
    """Which bytes a run's own figure counts.

    Attributes:
        first_stage: those of the first stage, not of the fullest.
        reserved: the allocator's pool, not what is alive in it.
        outside: with what a process holds outside of the allocator.
    """

    first_stage: bool
    reserved: bool
    outside: bool


def memory_figure_of(case: Case) -> MemoryFigure:
    """The run's own figure; what it leaves open is what the framework's logs print."""
    figure, usual = words.memory_figure_of(case.run.mem_kind), case.scenario.framework.memory_kind
    kind = figure.kind or usual
    return MemoryFigure(
        first_stage=figure.first_stage or (not case.run.mem_kind.strip() and usual == "first_stage"),
        reserved=kind in ("reserved", "device"),
        outside=kind == "device",
    )


def _shown_bytes(case: Case, first: float, peak: float) -> float:
    figure, parameters = memory_figure_of(case), case.scenario.resolved.parameters
    shown = first if figure.first_stage else peak
    if figure.reserved:
        shown *= float(parameters.reserved_over_allocated)
    if figure.outside:
        shown += float(parameters.context_bytes)
    return shown
