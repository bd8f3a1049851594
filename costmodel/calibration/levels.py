"""How far measured times lie from predicted ones, class by class: a factor each, shrunken towards none.

What is left of an error once the physics is right is mostly a level per kind of software and hardware. A class is a
tuple from general to special (framework, accelerator family, precision); its parent is the class without the last
part. Every group has one vote, the median of its runs, since runs of a group err together. The level of a class is
that of its parent plus the median vote's distance from it times ``n / (n + shrinkage)`` for n groups; the parent of
the most general class has level 0. A distance within its own standard error moves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Class = tuple[str, ...]

# Published studies of one class lie within about 20 % of each other; with as many groups of weight to the parent,
# one group moves a level by a quarter of its distance.
STUDY_SPREAD = 0.2
SHRINKAGE = 3.0

# Of normal values: standard deviation over median absolute deviation, and of their median over that of their mean.
_DEVIATION_PER_MAD = 1.4826
_MEDIAN_PER_MEAN_ERROR = 1.2533
_GROUPS_THAT_SHOW_A_SPREAD = 3


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Log factors on predicted times, by class.

    Attributes:
        groups: how many groups each level rests on.
    """

    values: Mapping[Class, float]
    groups: Mapping[Class, int]

    def of(self, key: Class) -> float:
        """The level of a class, or of its nearest parent that has one; 0 when nothing like it was seen."""
        return next((self.values[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self.values), 0.0)

    def factors(self, keys: Sequence[Class]) -> Floats:
        """What predicted times are to be multiplied by, one per key."""
        return np.array([exp(self.of(key)) for key in keys], dtype=float)


def fit_levels(
    keys: Sequence[Class],
    log_ratio: Floats,
    groups: Sequence[str],
    *,
    shrinkage: float = SHRINKAGE,
    spread: float = STUDY_SPREAD,
) -> Levels:
    """The levels that runs support.

    Args:
        keys: class of each run.
        log_ratio: log of measured over predicted time; runs where it is NaN count for nothing.
        groups: group of each run.
        shrinkage: groups that the parent class weighs as much as.
        spread: how far groups of a class lie from each other, for classes with too few to show it.
    """
    runs: dict[Class, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for key, ratio, group in zip(keys, log_ratio.tolist(), groups, strict=True):
        if np.isfinite(ratio):
            for length in range(1, len(key) + 1):
                runs[key[:length]][group].append(ratio)
    values: dict[Class, float] = {}
    for key in sorted(runs, key=len):
        votes = np.array([float(np.median(ratios)) for ratios in runs[key].values()])
        parent = values.get(key[:-1], 0.0)
        distance = float(np.median(votes)) - parent
        moves = abs(distance) > _standard_error(votes, spread)
        values[key] = parent + (distance * votes.size / (votes.size + shrinkage) if moves else 0.0)
    return Levels(values=values, groups={key: len(by_group) for key, by_group in runs.items()})


def _standard_error(votes: Floats, spread: float) -> float:
    if votes.size < _GROUPS_THAT_SHOW_A_SPREAD:
        return float(spread / np.sqrt(votes.size))
    deviation = _DEVIATION_PER_MAD * float(np.median(np.abs(votes - np.median(votes))))
    return float(_MEDIAN_PER_MEAN_ERROR * deviation / np.sqrt(votes.size))
