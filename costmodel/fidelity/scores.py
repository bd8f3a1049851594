"""The figures: predictions held against what was observed. docs/fidelity.md says what each of them means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from costmodel.fidelity.observed import Bools, Cell, Floats, Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.fidelity.ranking import regret, spearman

# A median over fewer rows says more about the rows than about the predictor.
LEAST_ROWS_OF_A_STUDY = 5
LEAST_PLANS_OF_A_CELL = 5


@dataclass(frozen=True, kw_only=True)
class Study:
    """The figures of one study; None where there is nothing to take them of."""

    scorable: int
    n: int
    coverage: float | None
    median_ape: float | None
    mean_ape: float | None
    bias: float | None
    interval_coverage: float | None
    mem_n: int
    mem_median_ape: float | None
    mem_bias: float | None
    mem_interval_coverage: float | None


@dataclass(frozen=True, kw_only=True)
class RankedCell:
    """The ranking of one cell. ``plans`` are those that were measured and predicted."""

    cell: Cell
    plans: int
    spearman: float
    regret_top1: float
    regret_top3: float


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """Every figure of one predictor. APE: absolute error relative to what was measured.

    Attributes:
        per_study, per_cell: in alphabetical order.
        beyond_rows: runs with a time that lie outside of what the calibration was fitted to; ``beyond_coverage`` is the
            share of them inside the interval, ``beyond_median_width`` its width.
        not_covered: why scorable runs have no predicted time, and how many.
        excluded: exclusion -> how many measured runs it leaves out of the time figures.
    """

    scorable: int
    coverage: float | None
    time_median_ape_macro: float | None
    time_mape_macro: float | None
    time_median_ape_all: float | None
    time_bias_all: float | None
    interval_coverage: float | None
    interval_rows: int
    interval_median_width: float | None
    mem_median_ape_all: float | None
    mem_median_ape_macro: float | None
    mem_rows: int
    mem_interval_coverage: float | None
    mem_interval_median_width: float | None
    beyond_rows: int
    beyond_coverage: float | None
    beyond_median_width: float | None
    oom_recall: float | None
    fit_recall: float | None
    oom_rows: int
    fit_rows: int
    cells: int
    spearman_mean: float | None
    regret_top1_mean: float | None
    regret_top1_median: float | None
    regret_top3_mean: float | None
    per_study: dict[str, Study]
    per_cell: tuple[RankedCell, ...]
    not_covered: dict[str, int]
    excluded: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        cells = [
            {**cell.cell._asdict(), **{k: v for k, v in asdict(cell).items() if k != "cell"}} for cell in self.per_cell
        ]
        return {**asdict(self), "per_cell": cells}


def score(observed: Observed, predicted: Predicted) -> Fidelity:
    """All figures of the predictions, one for every run that was observed."""
    errors = Errors.of(observed, predicted)
    per_study = {str(name): _study(observed, errors, observed.studies == name) for name in np.unique(observed.studies)}
    timed = [study for study in per_study.values() if study.n >= LEAST_ROWS_OF_A_STUDY]
    weighed = [study for study in per_study.values() if study.mem_n >= LEAST_ROWS_OF_A_STUDY]
    judged = ~np.isnan(predicted.feasible)
    ooms, fits = observed.out_of_memory & judged, observed.fits & judged
    missed = np.flatnonzero(observed.scorable & ~errors.timed).tolist()
    scorable = int(observed.scorable.sum())
    ranked = _ranked(observed, predicted)
    outside = errors.bounded & (predicted.doublings_beyond > 0)
    return Fidelity(
        scorable=scorable,
        coverage=int(errors.timed.sum()) / scorable if scorable else None,
        time_median_ape_macro=_mean([study.median_ape for study in timed]),
        time_mape_macro=_mean([study.mean_ape for study in timed]),
        time_median_ape_all=_median(np.abs(errors.time[errors.timed])),
        time_bias_all=_median(errors.time[errors.timed]),
        interval_coverage=_mean(errors.inside[errors.bounded]),
        interval_rows=int(errors.bounded.sum()),
        interval_median_width=_median(errors.width[errors.bounded]),
        mem_median_ape_all=_median(np.abs(errors.memory[errors.weighed])),
        mem_median_ape_macro=_mean([study.mem_median_ape for study in weighed]),
        mem_rows=int(errors.weighed.sum()),
        mem_interval_coverage=_mean(errors.memory_inside[errors.memory_bounded]),
        mem_interval_median_width=_median(errors.memory_width[errors.memory_bounded]),
        beyond_rows=int(outside.sum()),
        beyond_coverage=_mean(errors.inside[outside]),
        beyond_median_width=_median(errors.width[outside]),
        oom_recall=_mean(predicted.feasible[ooms] == 0),
        fit_recall=_mean(predicted.feasible[fits] == 1),
        oom_rows=int(ooms.sum()),
        fit_rows=int(fits.sum()),
        cells=len(ranked),
        spearman_mean=_mean([cell.spearman for cell in ranked]),
        regret_top1_mean=_mean([cell.regret_top1 for cell in ranked]),
        regret_top1_median=_median(np.array([cell.regret_top1 for cell in ranked])),
        regret_top3_mean=_mean([cell.regret_top3 for cell in ranked]),
        per_study={name: study for name, study in per_study.items() if study.scorable or study.mem_n},
        per_cell=ranked,
        not_covered=dict(Counter(predicted.reasons[row] for row in missed).most_common()),
        excluded=observed.excluded,
    )


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Per run. Relative errors of time and memory, and of which runs there is one.

    Attributes:
        timed, weighed: runs whose time, or memory, is judged and predicted.
        inside: measured time within the interval; ``bounded`` runs have one, and ``width`` is relative to the time.
        memory_inside, memory_bounded, memory_width: the same for memory.
    """

    time: Floats
    timed: Bools
    memory: Floats
    weighed: Bools
    inside: Bools
    bounded: Bools
    width: Floats
    memory_inside: Bools
    memory_bounded: Bools
    memory_width: Floats

    @classmethod
    def of(cls, observed: Observed, predicted: Predicted) -> Errors:
        time = predicted.step_time_s / observed.step_time_s - 1.0
        memory = predicted.peak_mem_gb / observed.peak_mem_gb - 1.0
        timed = observed.scorable & ~np.isnan(time)
        low, high = predicted.step_time_low_s, predicted.step_time_high_s
        width = (high - low) / predicted.step_time_s
        weighed = observed.memory_scorable & ~np.isnan(memory)
        least, most = predicted.peak_mem_low_gb, predicted.peak_mem_high_gb
        memory_width = (most - least) / predicted.peak_mem_gb
        return cls(
            time=time,
            timed=timed,
            memory=memory,
            weighed=weighed,
            inside=(low <= observed.step_time_s) & (observed.step_time_s <= high),
            bounded=timed & ~np.isnan(width),
            width=width,
            memory_inside=(least <= observed.peak_mem_gb) & (observed.peak_mem_gb <= most),
            memory_bounded=weighed & ~np.isnan(memory_width),
            memory_width=memory_width,
        )


def _study(observed: Observed, errors: Errors, rows: Bools) -> Study:
    scorable = int(np.sum(observed.scorable & rows))
    time, memory = errors.time[errors.timed & rows], errors.memory[errors.weighed & rows]
    return Study(
        scorable=scorable,
        n=time.size,
        coverage=time.size / scorable if scorable else None,
        median_ape=_median(np.abs(time)),
        mean_ape=_mean(np.abs(time)),
        bias=_median(time),
        interval_coverage=_mean(errors.inside[errors.bounded & rows]),
        mem_n=memory.size,
        mem_median_ape=_median(np.abs(memory)),
        mem_bias=_median(memory),
        mem_interval_coverage=_mean(errors.memory_inside[errors.memory_bounded & rows]),
    )


def _ranked(observed: Observed, predicted: Predicted) -> tuple[RankedCell, ...]:
    found = (_cell(cell, points, observed, predicted) for cell, points in observed.points.items())
    return tuple(sorted((ranked for ranked in found if ranked is not None), key=_alphabetical))


def _alphabetical(ranked: RankedCell) -> tuple[tuple[str, str], tuple[int, ...], tuple[str, str]]:
    cell = ranked.cell
    sizes = tuple(size or 0 for size in (cell.devices, cell.global_batch, cell.seq_len))
    return (cell.study, cell.model_name), sizes, (cell.accelerator, cell.precision)


def _cell(cell: Cell, points: Sequence[tuple[int, ...]], observed: Observed, predicted: Predicted) -> RankedCell | None:
    """The ranking of a cell; None where too few plans can be compared.

    Twins of a plan are one point: the median of what was measured, and the first prediction.
    """
    if len(points) < LEAST_PLANS_OF_A_CELL:
        return None
    measured = np.array([_twins_median(observed.step_time_s[list(rows)]) for rows in points])
    times = np.array([_first(predicted.step_time_s[list(rows)]) for rows in points])
    both = ~np.isnan(measured) & ~np.isnan(times)
    if both.sum() < LEAST_PLANS_OF_A_CELL:
        return None
    refused = np.array([predicted.feasible[rows[0]] == 0 for rows in points])
    offered = np.where(refused, np.nan, times)
    return RankedCell(
        cell=cell,
        plans=int(both.sum()),
        spearman=spearman(measured[both], times[both]),
        regret_top1=regret(measured, offered, 1),
        regret_top3=regret(measured, offered, 3),
    )


def _twins_median(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else float("nan")


def _first(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known[0]) if known.size else float("nan")


def _median(values: Floats) -> float | None:
    return float(np.median(values)) if values.size else None


def _mean(values: Floats | Bools | Sequence[float | None]) -> float | None:
    array = np.asarray(values, dtype=float)
    return float(array.mean()) if array.size else None
