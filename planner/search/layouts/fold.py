"""Sharing out layers: device after device, each at the cost of what it then has.

``costs`` are ``(rows, holdings)``, infinite for what a plan can't have. All rows are done at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from costmodel.arrays import Bools, Ints, Num
from planner.search.layouts.batch import Holdings
from planner.search.layouts.splits import Splits

Combine = Callable[[Num, Num], Num]


def least_sum(splits: Splits, costs: Num) -> Num:
    """By row the least sum of the devices' costs; infinite where the layers can't be shared out."""
    return _folded(splits, costs, np.add)[-1][:, -1]


def least_maxima(holdings: Holdings, of_row: Ints, costs: Num) -> Num:
    """By row the least that the costliest device can cost; rows may have different ways to share out layers.

    Args:
        of_row: place among the holdings' groups.
        costs: ``(rows, width)``; those of what only fills up a row are not read.
    """
    found = np.full(len(costs), np.inf)
    single = np.array([splits.holding_at.shape[1] == 1 for splits in holdings.groups])[of_row]
    open_ = ~single
    rows = np.flatnonzero(single)
    if len(rows):
        found[rows], known = _by_layers(holdings, of_row[rows], costs[rows])
        open_[rows[~known]] = True
    left = np.flatnonzero(open_)
    for place in np.unique(of_row[left]).tolist():
        own, splits = left[of_row[left] == place], holdings.groups[place]
        found[own] = _folded(splits, costs[own, : len(splits.device)], np.maximum)[-1][:, -1]
    return found


def _by_layers(holdings: Holdings, of_row: Ints, costs: Num) -> tuple[Num, Bools]:
    """The same where a device costs no less with more layers than the fewest it can have, and whether that holds.

    Every layer beyond the fewest then is one to choose: the cheapest that are needed. Only for ways in which it is no
    matter where a device starts: holdings lie device by device, the fewest layers first.
    """
    device, layers = holdings.device[of_row], (holdings.dense + holdings.moe)[of_row]
    depth = np.array([splits.pipeline.pp for splits in holdings.groups])[of_row]
    whole = np.array([splits.pipeline.layers for splits in holdings.groups])[of_row]
    there = np.isfinite(costs) & holdings.own[of_row]
    beside = device[:, 1:] == device[:, :-1]
    begins = there.copy()
    begins[:, 1:] &= ~(beside & there[:, :-1])
    both = beside & there[:, 1:] & there[:, :-1]
    broken = both & ((costs[:, 1:] < costs[:, :-1]) | (layers[:, 1:] != layers[:, :-1] + 1))
    # Of every device what it can have follows each other: the first is the fewest.
    turn, count = np.cumsum(begins, axis=1) - 1, begins.sum(axis=1)
    each = ~(begins & (turn != device)).any(axis=1) & (count == depth)
    known = (each & ~broken.any(axis=1)) | (count < depth)
    needed = whole - np.where(begins, layers, 0).sum(axis=1)
    found = np.full(len(costs), np.inf)
    rows = np.flatnonzero(each & known & (needed >= 0))
    given = np.where(begins[rows], costs[rows], -np.inf).max(axis=1, initial=-np.inf)
    further = np.sort(np.where(there[rows] & ~begins[rows], costs[rows], np.inf), axis=1)
    further = np.concatenate([np.full((len(rows), 1), -np.inf), further, np.full((len(rows), 1), np.inf)], axis=1)
    last = further[np.arange(len(rows)), np.minimum(needed[rows], further.shape[1] - 1)]
    found[rows] = np.maximum(given, last)
    return found, np.asarray(known)


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
