"""Sharing out layers: device after device, each at the cost of what it then has.

``costs`` are ``(rows, holdings)``, infinite for what a plan can't have. All rows are done at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from costmodel.arrays import Bools, Ints, Num
from planner.search.layouts.splits import Splits

Combine = Callable[[Num, Num], Num]


def least_sum(splits: Splits, costs: Num) -> Num:
    """By row the least sum of the devices' costs; infinite where the layers can't be shared out."""
    return _folded(splits, costs, np.add)[-1][:, -1]


def least_maximum(splits: Splits, costs: Num) -> Num:
    """By row the least that the costliest device can cost."""
    found = np.empty(len(costs))
    quick: Bools = np.zeros(len(costs), dtype=np.bool_)
    if splits.holding_at.shape[1] == 1:
        found, quick = _by_layers(splits, costs)
    if not quick.all():
        found[~quick] = _folded(splits, costs[~quick], np.maximum)[-1][:, -1]
    return found


def _by_layers(splits: Splits, costs: Num) -> tuple[Num, Bools]:
    """The same where a device costs no less with more layers, and whether that holds, by row.

    Every layer beyond the fewest then is one to choose: the cheapest that are needed.
    """
    at, p = splits.holding_at[:, 0, :], splits.pipeline
    by_count = np.concatenate([costs, np.full((len(costs), 1), np.inf)], axis=1)[:, at]
    fewest = [p.least_of(device) - splits.fewest for device in range(p.pp)]
    rows = np.arange(p.pp)
    given = by_count[:, rows, fewest]
    further = np.where(np.arange(splits.width) > np.array(fewest)[:, np.newaxis], by_count, np.inf)
    own = np.where(np.arange(splits.width) >= np.array(fewest)[:, np.newaxis], by_count, -np.inf)
    with np.errstate(invalid="ignore"):
        rising = ~(own[:, :, 1:] < own[:, :, :-1]).any(axis=(1, 2))
    needed = p.layers - sum(p.least_of(device) for device in range(p.pp))
    found: Num = given.max(axis=1)
    if needed > 0:
        flat = further.reshape(len(costs), -1)
        found = np.maximum(found, np.partition(flat, needed - 1, axis=1)[:, needed - 1])
    return found, np.asarray(rising)


def shared_out(splits: Splits, costs: Num) -> Ints:
    """``(rows, devices)``: the holding of every device at each row's least sum of ``costs``; there has to be one."""
    states, p = _folded(splits, costs, np.add), splits.pipeline
    rows, left = np.arange(len(costs)), np.full(len(costs), p.layers)
    found = np.full((len(costs), p.pp), -1, dtype=np.int64)
    for device in range(p.pp - 1, -1, -1):
        ends = left.copy()
        for width in range(splits.width):
            start = np.maximum(ends - splits.fewest - width, 0)
            holding = splits.holding_at[device, splits.start_kind[start], width]
            sums = states[device][rows, start] + costs[rows, holding]
            fits = (ends >= splits.fewest + width) & (holding >= 0) & (found[:, device] < 0)
            fits &= (sums == states[device + 1][rows, ends]) & np.isfinite(sums)
            found[fits, device], left[fits] = holding[fits], start[fits]
    return found


def _folded(splits: Splits, costs: Num, combine: Combine) -> list[Num]:
    """States ``(rows, layers + 1)`` before the first device and after each: the least cost of so many layers."""
    layers, fewest = splits.pipeline.layers, splits.fewest
    padded = np.concatenate([costs, np.full((len(costs), 1), np.inf)], axis=1)
    state = np.full((len(costs), layers + 1), np.inf)
    state[:, 0] = 0.0
    states = [state]
    spans = _spans(splits)
    for device in range(splits.pipeline.pp):
        first, last = spans[device]
        after = np.full_like(state, np.inf)
        kinds = splits.start_kind[first : last + 1]
        for width in range(splits.width):
            count = fewest + width
            end = min(last, layers - count)
            if end < first:
                break
            of = splits.holding_at[device, :, width]
            if (of < 0).all():
                continue
            cost = padded[:, of[kinds[: end - first + 1]]] if len(of) > 1 else padded[:, of]
            into = after[:, first + count : end + count + 1]
            np.minimum(into, combine(state[:, first : end + 1], cost), out=into)
        states.append(after)
        state = after
    return states


def _spans(splits: Splits) -> list[tuple[int, int]]:
    """For each device the first and the last layer at which it can start."""
    p, most = splits.pipeline, splits.fewest + splits.width - 1
    least: Ints = np.array([p.least_of(device) for device in range(p.pp)], dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(least)])
    found = []
    for device in range(p.pp):
        later = p.pp - device
        first = max(int(before[device]), p.layers - later * most)
        last = min(device * most, p.layers - int(before[-1] - before[device]))
        found.append((first, last))
    return found
