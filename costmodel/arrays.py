"""The one numeric type of the cost model.

A ``Num`` is a float64 array that broadcasts: 0-d for a fact of one scenario, ``(rows,)`` for a column of plans or runs,
``(rows, stages)`` for per-stage quantities. Terms are written once and never ask which of these they got.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Num: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def num(value: ArrayLike) -> Num:
    """``value`` as float64; a scalar becomes a 0-d array."""
    return np.asarray(value, dtype=np.float64)


def per_stage(value: ArrayLike) -> Num:
    """A per-row quantity with a trailing axis of length one, so that it broadcasts against ``(rows, stages)``."""
    array = num(value)
    return array if array.ndim == 0 else array[..., np.newaxis]


def constant(value: int, count: int) -> Ints:
    """A column of one value that takes no room, and that ``distinct`` and ``taken`` see for what it is."""
    return np.broadcast_to(np.int64(value), (count,))


def taken(column: Ints, rows: Ints | Bools | slice) -> Ints:
    """The chosen rows of a column; a constant one stays constant."""
    if not is_constant(column) or not len(column):
        return column[rows]
    if isinstance(rows, slice):
        return np.broadcast_to(column[0], (len(range(*rows.indices(len(column)))),))
    chosen = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
    return np.broadcast_to(column[0], (chosen,))


_DENSE_KEYS = 1 << 22


Ranks: TypeAlias = tuple[Ints, int]
"""The place of each value of a column among its distinct ones, and how many these are."""


def distinct(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The distinct tuples of several columns of small non-negative integers.

    Returns:
        For each distinct tuple, in ascending order, the row of its first occurrence; for every row, its tuple.
    """
    # A constant column tells no rows apart.
    telling = [column for column in columns if not is_constant(column)] or [columns[0]]
    return distinct_ranks([ranks(column) for column in telling])


def distinct_ranks(columns: Sequence[Ranks]) -> tuple[Ints, Ints]:
    """The same of columns whose ranks are known."""
    key, size = columns[0]
    for ranked, count in columns[1:]:
        key, size = key * count + ranked, size * count
    if size > _DENSE_KEYS:
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        return first, inverse
    first_of = np.full(size, -1, dtype=np.int64)
    first_of[key[::-1]] = np.arange(len(key))[::-1]
    used = first_of >= 0
    return first_of[used], (np.cumsum(used) - 1)[key]


def is_constant(column: Ints) -> bool:
    """Whether a column is one value that takes no room."""
    return column.strides == (0,)


def ranks(column: Ints) -> Ranks:
    """Position of each value among the distinct ones, and how many there are."""
    highest = int(column.max(initial=0))
    if highest >= _DENSE_KEYS:
        values, inverse = np.unique(column, return_inverse=True)
        return inverse, len(values)
    present = np.zeros(highest + 1, dtype=np.int64)
    present[column] = 1
    rank = np.cumsum(present) - 1
    return rank[column], max(int(rank[-1]) + 1, 1)
