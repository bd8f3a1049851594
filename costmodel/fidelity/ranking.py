"""How well predictions order plans, and what picking by them costs."""

from __future__ import annotations

from math import comb

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; equal values share the mean of their ranks. 0 where one side has a single value."""
    ranks_a, ranks_b = _ranks(a), _ranks(b)
    ranks_a, ranks_b = ranks_a - ranks_a.mean(), ranks_b - ranks_b.mean()
    scale = np.sqrt(np.sum(ranks_a**2) * np.sum(ranks_b**2))
    return float(np.sum(ranks_a * ranks_b) / scale) if scale > 0 else 0.0


def regret(measured: Floats, predicted: Floats, picks: int) -> float:
    """What is lost by running the first ``picks`` plans in predicted order instead of the best plan there is.

    The worth of a plan is the best measured time over its own, 0 when it failed; the regret is 1 minus the most worth
    among those picked. Plans with equal predictions come in random order: this is the expectation over it. With
    ``r`` of ``g`` equal plans still to be picked, the worth of the best of them is at most that of the k-th worst
    with probability ``C(k, r) / C(g, r)``.

    Args:
        measured: seconds; NaN for a plan that failed. At least one did not.
        predicted: seconds; NaN for a plan that the predictor would not offer (no prediction, or said not to fit).
    """
    worth = np.nan_to_num(np.nanmin(measured) / measured, nan=0.0)
    offered = ~np.isnan(predicted)
    worth, predicted = worth[offered], predicted[offered]
    if not worth.size:
        return 1.0
    last = np.sort(predicted)[min(picks, predicted.size) - 1]
    ahead = worth[predicted < last]
    tied = np.sort(worth[predicted == last])
    certain = float(ahead.max(initial=0.0))
    left = min(picks, predicted.size) - ahead.size
    ways = [comb(k, left) for k in range(tied.size + 1)]
    expected = sum(
        max(certain, float(value)) * (ways[k] - ways[k - 1]) / ways[-1] for k, value in enumerate(tied, start=1)
    )
    return 1.0 - expected


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray(((2 * ends - counts - 1) / 2.0)[inverse], dtype=float)
