"""How much of a move a few runs of one place support.

A fit moves parameters to where the runs lie on average. Where few runs disagree with one another, that average is
luck: the next run of the place may lie on the other side. So of the move that a fit asks for, only the share is made
that the runs support with some confidence, none when they disagree more than they move.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Num
from costmodel.calibration.fit.errors import COVERED_DEVIATIONS

_REPEATED = 0.04  # of the log: one plan measured twice differs by 1-2 % where it is dense, 6 % with experts
_PRIOR_RUNS = 1.0  # how many runs that scatter counts as
_WILD = 3.0  # in scatters from the median after the move: a run further out counts as if it lay there
_NOTHING = 1e-9
_MAD = 1.4826  # median absolute deviations in one standard deviation of a normal value


def supported_share(residuals: Num, moves: Num) -> float:
    """The share of a move that runs support, from 0 to 1.

    The slope of the residuals over the moves, less its standard error times the quantile of 95 %.

    Args:
        residuals: per run, log of measured over predicted before the move.
        moves: per run, log of predicted after over before.
    """
    squares = float(moves @ moves)
    if squares < _NOTHING:
        return 1.0
    after = residuals - moves
    middle = np.median(after)
    scatter = max(_MAD * float(np.median(np.abs(after - middle))), _REPEATED)
    clipped = moves + np.clip(after, middle - _WILD * scatter, middle + _WILD * scatter)
    slope = float(moves @ clipped) / squares
    left = clipped - slope * moves
    variance = (left @ left + _PRIOR_RUNS * _REPEATED**2) / (residuals.size - 1 + _PRIOR_RUNS)
    # Of a tenth outside of both ends, half lie below the lower one.
    return float(np.clip(slope - COVERED_DEVIATIONS * np.sqrt(variance / squares), 0.0, 1.0))
