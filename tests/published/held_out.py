"""Figures of groups that no fit has seen, as recorded; ``python -m tests.published.held_out`` records them anew.

The noise of a figure is the standard error of its mean by bootstrap: over studies for errors, over cells for regret. A
figure that is worse by more than that is worse.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from costmodel.calibration.fit.priors import load_priors
from costmodel.fidelity.folds import held_out, studies_left_out
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.scores import LEAST_ROWS_OF_A_STUDY, Fidelity, score
from costmodel.runs.carried import default_runs

RECORDED = Path(__file__).with_name("held_out.json")
FOLDS = 5
FIGURES = ("time_median_ape_macro", "mem_median_ape_macro", "regret_top1_mean")
INTERVALS = ("interval_coverage", "interval_median_width", "mem_interval_coverage", "mem_interval_median_width")
HIGHER_IS_BETTER = ("spearman_mean", "oom_recall", "fit_recall", "coverage")
_RESAMPLES = 2000


def figures() -> Fidelity:
    """The figures of today's product."""
    runs = default_runs()
    return score(Observed.of(runs), held_out(runs, load_priors(), folds=FOLDS, workers=min(2, os.cpu_count() or 1)))


def cold_figures() -> Fidelity:
    """The same of studies that no fit has seen."""
    runs, workers = default_runs(), min(2, os.cpu_count() or 1)
    return score(Observed.of(runs), studies_left_out(runs, load_priors(), folds=FOLDS, workers=workers).before)


def noise(found: Fidelity) -> dict[str, float]:
    """Standard errors of the figures that are means."""
    studies = found.per_study.values()
    of_time = [s.median_ape for s in studies if s.n >= LEAST_ROWS_OF_A_STUDY and s.median_ape is not None]
    of_memory = [s.mem_median_ape for s in studies if s.mem_n >= LEAST_ROWS_OF_A_STUDY and s.mem_median_ape is not None]
    return {
        "time_median_ape_macro": _standard_error(of_time),
        "mem_median_ape_macro": _standard_error(of_memory),
        "regret_top1_mean": _standard_error([cell.regret_top1 for cell in found.per_cell]),
        "spearman_mean": _standard_error([cell.spearman for cell in found.per_cell]),
    }


def _standard_error(values: Sequence[float]) -> float:
    rng = np.random.default_rng(0)
    resampled = rng.choice(np.asarray(values), size=(_RESAMPLES, len(values)))
    return float(resampled.mean(axis=1).std())


def main() -> None:
    """Record the figures of today's product."""
    found = figures()
    names = (*FIGURES, *HIGHER_IS_BETTER, *INTERVALS)
    record = {
        "figures": {name: round(float(getattr(found, name)), 4) for name in names},
        "noise": {name: round(value, 4) for name, value in noise(found).items()},
    }
    RECORDED.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
