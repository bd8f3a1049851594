"""How far measured figures lie from predicted ones, class by class: the intervals that predictions come with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import exp, hypot, log1p

import numpy as np
from numpy.typing import NDArray

from costmodel.arrays import Num
from costmodel.calibration.calibration import ParameterRow
from costmodel.calibration.fit.tree import Case

COVERED = 0.9
"""Share of measured figures that an interval is meant to hold."""
COVERED_DEVIATIONS = 1.645
"""Standard deviations, to both sides, that hold as much of a normal distribution."""

# Groups that the class above weighs as much as. What a few groups show says little of the next one.
_SHRINKAGE = 4.0
_LEVELS = (("framework",), ("family", "framework"), ("family", "precision", "framework"))


def error_rows(
    name: str,
    cases: Sequence[Case],
    groups: NDArray[np.str_],
    residuals: Num,
    general: float,
    what: str,
    *,
    study_spread: float,
) -> list[ParameterRow]:
    """Rows of a relative error for the classes that runs show.

    Args:
        name: the parameter: of time or of memory.
        cases, groups, residuals: per run; the residual is log of measured over predicted.
        general: relative error of a case of which nothing is known.
        what: what the runs are, for the source of each row.
        study_spread: standard deviation of the log of what studies have as a level of their own. A class has runs of
            few of them, and the next one, of which nothing is known yet, has another; 0 where all are of one place.
    """
    found: dict[Case, float] = {}
    rows: list[ParameterRow] = []
    for level in _LEVELS:
        members: dict[Case, list[int]] = defaultdict(list)
        for run, case in enumerate(cases):
            members[_class(case, level)].append(run)
        for key, index in members.items():
            parent = next((found[_class(key, above)] for above in _above(level)), log1p(general))
            count = len(set(groups[index].tolist()))
            error = (count * _quantile(residuals[index], groups[index]) + _SHRINKAGE * parent) / (count + _SHRINKAGE)
            found[key] = error
            rows.append(
                ParameterRow(
                    name=name,
                    value=float(f"{exp(hypot(error, COVERED_DEVIATIONS * study_spread)) - 1.0:.3g}"),
                    **{field: getattr(key, field) for field in level},
                    provenance="calibrated",
                    source=f"90th percentile over {len(index)} {what} of {count} groups, shrunken to that of more",
                )
            )
    return rows


def _class(case: Case, level: Sequence[str]) -> Case:
    return Case(*(getattr(case, name) if name in level else "" for name in Case._fields))


def _above(level: Sequence[str]) -> list[tuple[str, ...]]:
    return [other for other in reversed(_LEVELS) if set(other) < set(level)]


def _quantile(residuals: Num, groups: NDArray[np.str_]) -> float:
    """Of the absolute residuals, every group weighing the same."""
    _, of_run, counts = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(np.abs(residuals))
    weight = np.cumsum(1.0 / counts[of_run][order])
    first = int(np.searchsorted(weight, COVERED * weight[-1]))
    return float(np.abs(residuals)[order][min(first, len(order) - 1)])
