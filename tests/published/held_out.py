"""Figures of groups that no fit has seen, as recorded; ``python -m tests.published.held_out`` records them anew.

The noise of a figure is its standard error by bootstrap: over studies for means over studies, over cells for regret,
over groups for errors of all runs. A figure that is worse by more than that is worse. Few studies have memory, and they
differ so much that their mean could get worse by a third unseen: the median over all runs is the sharper one there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costmodel.calibration.fit.priors import load_priors
from costmodel.fidelity.folds import held_out
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.fidelity.scores import LEAST_ROWS_OF_A_STUDY, Errors, Fidelity, score
from costmodel.runs.carried import default_runs

RECORDED = Path(__file__).with_name("held_out.json")
FOLDS = 5
FIGURES = (
    *("time_median_ape_macro", "mem_median_ape_macro", "regret_top1_mean"),
    *("time_median_ape_all", "mem_median_ape_all"),
)
INTERVALS = ("interval_coverage", "interval_median_width", "mem_interval_coverage", "mem_interval_median_width")
HIGHER_IS_BETTER = ("spearman_mean", "oom_recall", "fit_recall", "coverage")
_RESAMPLES = 2000


def predictions(*, folds: int = FOLDS, by_study: bool = False) -> Predicted:
    """What fits say of the carried runs of groups, or of whole studies, that they have not seen."""
    workers = min(2, os.cpu_count() or 1)
    return held_out(default_runs(), load_priors(), folds=folds, by_study=by_study, workers=workers)


def figures(*, folds: int = FOLDS, by_study: bool = False) -> Fidelity:
    """The figures of today's product."""
    return score(Observed.of(default_runs()), predictions(folds=folds, by_study=by_study))


def noise(observed: Observed, predicted: Predicted) -> dict[str, float]:
    """Standard errors of the figures."""
    found, errors = score(observed, predicted), Errors.of(observed, predicted)
    groups = np.array([run.group for run in observed.runs])
    studies = found.per_study.values()
    of_time = [s.median_ape for s in studies if s.n >= LEAST_ROWS_OF_A_STUDY and s.median_ape is not None]
    of_memory = [s.mem_median_ape for s in studies if s.mem_n >= LEAST_ROWS_OF_A_STUDY and s.mem_median_ape is not None]
    return {
        "time_median_ape_macro": _standard_error(of_time),
        "mem_median_ape_macro": _standard_error(of_memory),
        "regret_top1_mean": _standard_error([cell.regret_top1 for cell in found.per_cell]),
        "spearman_mean": _standard_error([cell.spearman for cell in found.per_cell]),
        "time_median_ape_all": _over_groups(np.abs(errors.time[errors.timed]), groups[errors.timed]),
        "mem_median_ape_all": _over_groups(np.abs(errors.memory[errors.weighed]), groups[errors.weighed]),
    }


def _over_groups(values: NDArray[np.float64], groups: NDArray[np.str_]) -> float:
    """Of the median over all runs, whose groups are drawn: runs of one know of each other."""
    rng = np.random.default_rng(0)
    parts = [values[groups == name] for name in np.unique(groups)]
    drawn = (rng.integers(len(parts), size=len(parts)) for _ in range(_RESAMPLES))
    return float(np.std([np.median(np.concatenate([parts[index] for index in of])) for of in drawn]))


def _standard_error(values: Sequence[float]) -> float:
    rng = np.random.default_rng(0)
    resampled = rng.choice(np.asarray(values), size=(_RESAMPLES, len(values)))
    return float(resampled.mean(axis=1).std())


def main() -> None:
    """Record the figures of today's product."""
    observed, predicted = Observed.of(default_runs()), predictions()
    found = score(observed, predicted)
    names = (*FIGURES, *HIGHER_IS_BETTER, *INTERVALS)
    record = {
        "figures": {name: round(float(getattr(found, name)), 4) for name in names},
        "noise": {name: round(value, 4) for name, value in noise(observed, predicted).items()},
    }
    RECORDED.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
