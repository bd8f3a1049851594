"""Predictions held out beside what was measured, by study: what the pictures of docs/fidelity.md show.

A residual is ``log(predicted / measured)``, so that half and twice lie equally far from 0.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Bools, Num
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.fidelity.rough_memory import active_params
from costmodel.fidelity.scores import LEAST_ROWS_OF_A_STUDY
from costmodel.runs.columns import Run

OTHERS = "all other studies"
"""Those with fewer runs than a figure of their own needs, together."""


@dataclass(frozen=True, kw_only=True)
class Points:
    """Runs that have both numbers, an entry each.

    Attributes:
        what, unit: what was measured, and in what.
        studies: the study of each run.
    """

    what: str
    unit: str
    runs: tuple[Run, ...]
    studies: tuple[str, ...]
    measured: Num
    predicted: Num

    @property
    def residuals(self) -> Num:
        """``log(predicted / measured)``."""
        return np.log(self.predicted / self.measured)

    def of(self, study: str) -> Points:
        """Those of one study, or of ``OTHERS``."""
        large = self.sizes()
        named = [OTHERS if name not in large else name for name in self.studies]
        return self._only(np.array([name == study for name in named], dtype=bool))

    def sizes(self) -> dict[str, int]:
        """Study -> runs, the largest first, without those that are in ``OTHERS``."""
        counted = sorted(Counter(self.studies).items(), key=lambda item: (-item[1], item[0]))
        return {study: n for study, n in counted if n >= LEAST_ROWS_OF_A_STUDY}

    def panels(self) -> list[str]:
        """The studies, the largest first, and ``OTHERS`` where there are any."""
        large = list(self.sizes())
        return large + [OTHERS] * any(study not in large for study in self.studies)

    def _only(self, rows: Bools) -> Points:
        chosen = np.flatnonzero(rows).tolist()
        return Points(
            what=self.what,
            unit=self.unit,
            runs=tuple(self.runs[row] for row in chosen),
            studies=tuple(self.studies[row] for row in chosen),
            measured=self.measured[rows],
            predicted=self.predicted[rows],
        )


def points_of_time(observed: Observed, predicted: Predicted) -> Points:
    """Of the runs whose time is judged."""
    return _points("step time", "s", observed, observed.scorable, observed.step_time_s, predicted.step_time_s)


def points_of_memory(observed: Observed, predicted: Predicted) -> Points:
    """Of the runs whose memory is judged."""
    rows = observed.memory_scorable
    return _points("peak memory", "GiB", observed, rows, observed.peak_mem_gb, predicted.peak_mem_gb)


def _points(what: str, unit: str, observed: Observed, rows: Bools, measured: Num, predicted: Num) -> Points:
    every = Points(
        what=what,
        unit=unit,
        runs=observed.runs,
        studies=tuple(observed.studies.tolist()),
        measured=measured,
        predicted=predicted,
    )
    return every._only(rows & np.isfinite(measured) & np.isfinite(predicted))


# -- residuals against a property of the run ---------------------------------------------------------------------------

AXES: dict[str, Callable[[Run], float | None]] = {
    "devices": lambda run: run.devices,
    "tp": lambda run: run.tp,
    "pp": lambda run: run.pp,
    "micro-batch (sequences)": lambda run: run.micro_batch,
    "active parameters (billions)": lambda run: (active_params(run) or 0.0) / 1e9 or None,
}
"""What residuals may follow -> its value for a run, None where the run doesn't say."""


@dataclass(frozen=True, kw_only=True)
class Bin:
    """The residuals of the runs whose value rounds to ``2 ** exponent``."""

    exponent: int
    residuals: Num


def binned(points: Points, value_of: Callable[[Run], float | None]) -> list[Bin]:
    """By powers of two, the least first; runs without a value are left out."""
    values = np.array([value_of(run) or np.nan for run in points.runs], dtype=float)
    exponents = np.round(np.log2(values))
    residuals = points.residuals
    return [
        Bin(exponent=int(exponent), residuals=residuals[exponents == exponent])
        for exponent in np.unique(exponents[np.isfinite(exponents)])
    ]


# -- the same in numbers -----------------------------------------------------------------------------------------------

COLUMNS = ("figure", "study", "runs", "median_error", "median_ape", "p10_error", "p90_error")


def table(both: Sequence[Points]) -> str:
    """CSV: per study the median of the relative error and of its absolute value, its tenth and ninetieth percentile."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for points in both:
        for study in points.panels():
            error = np.expm1(points.of(study).residuals)
            figures = (np.median(error), np.median(np.abs(error)), *np.percentile(error, [10, 90]))
            rows.writerow([points.what, study, error.size, *(f"{figure:.3f}" for figure in figures)])
    return text.getvalue()
