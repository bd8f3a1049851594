"""Levels held out: refitted on some groups and judged on the others.

Only a factor per class is refitted, on top of the predictions as they are. Whatever parameters those rest on stay, also
where they were fitted to the very groups that are judged, so this is no error on runs that a fit has never seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.calibration.levels import Class, Levels, fit_levels
from costmodel.errors import InvalidInput
from costmodel.fidelity.observed import Bools, Observed
from costmodel.fidelity.predicted import Predicted

FEWEST_FOLDS = 2
MOST_FOLDS = 20


def levels_in_sample(observed: Observed, predicted: Predicted, classes: Sequence[Class]) -> Predicted:
    """The predictions with the levels that all their own runs support."""
    everything = np.ones(len(classes), dtype=bool)
    return predicted.slowed(_fitted(observed, predicted, classes, everything).factors(classes))


def levels_held_out(
    observed: Observed, predicted: Predicted, classes: Sequence[Class], *, folds: int, seed: int = 0
) -> Predicted:
    """The predictions with, for every run, the levels that the groups of the other folds support.

    Raises:
        InvalidInput: ``folds`` is out of range, or there are fewer groups than that.
    """
    fold = _deal([run.group for run in observed.runs], folds, seed)
    factors = np.ones(len(classes), dtype=float)
    for number in range(folds):
        inside = fold == number
        factors[inside] = _fitted(observed, predicted, classes, ~inside).factors(classes)[inside]
    return predicted.slowed(factors)


def _deal(groups: Sequence[str], folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each run. Groups are dealt, never runs: those of one group know of each other."""
    names, of_run = np.unique(np.array(groups, dtype=np.str_), return_inverse=True)
    if not FEWEST_FOLDS <= folds <= MOST_FOLDS:
        raise InvalidInput("folds", folds, f"{FEWEST_FOLDS} to {MOST_FOLDS} are possible")
    if names.size < folds:
        raise InvalidInput("folds", folds, f"the runs are of {names.size} groups only, and groups are never split")
    dealt = np.random.default_rng(seed).permutation(names.size) % folds
    return np.asarray(dealt[of_run], dtype=np.int64)


def _fitted(observed: Observed, predicted: Predicted, classes: Sequence[Class], rows: Bools) -> Levels:
    usable = observed.scorable & rows
    log_ratio = np.where(usable, np.log(observed.step_time_s / predicted.step_time_s), np.nan)
    return fit_levels(classes, log_ratio, [run.group for run in observed.runs])
