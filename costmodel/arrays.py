"""The one numeric type of the cost model.

A ``Num`` is a float64 array that broadcasts: 0-d for a fact of one scenario, ``(rows,)`` for a column of plans or runs,
``(rows, stages)`` for per-stage quantities. Terms are written once and never ask which of these they got.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Num: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def num(value: ArrayLike) -> Num:
    """``value`` as float64; a scalar becomes a 0-d array."""
    return np.asarray(value, dtype=np.float64)


def per_stage(value: Any) -> Num:
    """A per-row quantity with a trailing axis of length one, so that it broadcasts against ``(rows, stages)``."""
    array = num(value)
    return array if array.ndim == 0 else array[..., np.newaxis]
