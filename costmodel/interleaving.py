"""What an interleaved pipeline waits beyond its closed form because its chunks take unlike times.

A device with a short chunk waits for one that has a long chunk in the same slot. In slot n of interleaved 1F1B
device d runs the forward pass of its unit ``n - d`` and then the backward pass of its unit ``n - w + d``, where
``w = 2(p - 1) + (v - 1) g`` and units are ``g`` micro-batches through one chunk after the other (Megatron-Core's order,
``timeline/orders.py``). With ``F_n(d)``, ``B_n(d)`` the ends of both

    F_n(d) = max(B_{n-1}(d), F_{n-1}(d - 1)) + forward
    B_n(d) = max(F_n(d), B_{n-1}(d + 1)) + backward

where device 0 takes what device p - 1 ended, g - p slots before, and the other way round. So whole slots of all devices
of many plans are done at once. All chunks of one size give the closed form, ``m W + (p - 1)(F + B)/v``.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Ints, Num, distinct, num

_GROUPS = 4
"""Groups of micro-batches that are run; each further one takes as long as the last of them did."""
_ROWS_AT_ONCE = 64  # keeps what is looked up for all slots small
_ROUNDING = 1e-9


def unlike_chunks_s(pp: Ints, vpp: Ints, num_microbatches: Ints, forward: Num, backward: Num) -> Num:
    """Seconds that a step takes beyond its slowest device's work and the bubble of equal chunks, by row.

    Args:
        forward, backward: ``(rows, stages)`` seconds of one micro-batch on each virtual stage, in the order in which it
            meets them; of stages beyond ``pp vpp`` nothing is read.
    """
    group = num_microbatches // np.maximum(num_microbatches // pp, 1)
    groups = np.minimum(num_microbatches // group, _GROUPS)
    found = np.zeros(len(pp))
    first, inverse = distinct([pp, vpp, group, groups])
    for code, row in enumerate(first.tolist()):
        rows, p, v = np.flatnonzero(inverse == code), int(pp[row]), int(vpp[row])
        for some in np.array_split(rows, -(-len(rows) // _ROWS_AT_ONCE)):
            ahead, back = (of[some, : p * v].T.reshape(v, p, len(some)) for of in (forward, backward))
            end, further = _ends_s(ahead, back, int(group[row]), int(groups[row]))
            left = num_microbatches[some] / group[row] - groups[row]
            work = (ahead + back).sum(axis=0)
            even = num(num_microbatches[some]) * work.max(axis=0) + (p - 1.0) / v * work.mean(axis=0)
            beyond = end + left * further - even
            found[some] = np.where(beyond > _ROUNDING * even, beyond, 0.0)
    return found


def _ends_s(forward: Num, backward: Num, group: int, groups: int) -> tuple[Num, Num]:
    """When so many groups of micro-batches are done, and what the last of them took, by row.

    What it took is the most of any device: once the pipeline has its rhythm all take the same, and until then no less
    than it (Collatz and Wielandt's bound, of max-plus matrices).

    Args:
        forward, backward: ``(chunks, devices, rows)``.
    """
    v, p, rows = forward.shape
    # Of fewer micro-batches than devices the first device waits for each chunk to come round.
    real, group, device = group, max(group, p), np.arange(p)
    units, ahead = groups * group * v, 2 * (p - 1) + (v - 1) * group
    slot = np.arange(units + ahead)[:, np.newaxis]
    takes, met = _in_slots(forward, slot - device, (group, real), units)
    # Backward passes go the other way: from the last chunk of the last device.
    takes_back, met_back = _in_slots(backward[::-1, ::-1], slot - (ahead - p + 1) - device, (group, real), units)
    takes_back, met_back = takes_back[:, ::-1], met_back[:, ::-1]
    # Ends of what devices ran last, beside what comes round: what one end of the pipeline did some slots ago, the other
    # takes up.
    late = group - p + 1
    ahead_at, back_at, free = np.zeros((p + 1, rows)), np.zeros((p + 1, rows)), np.empty((p, rows))
    done, done_back = ahead_at[1:], back_at[:-1]
    rounds, rounds_back = np.zeros((late, rows)), np.zeros((late, rows))
    before = last = np.zeros((p, rows))
    for at in range(len(slot)):
        ahead_at[0], back_at[-1] = rounds[at % late], rounds_back[at % late]
        np.add(ahead_at[:-1], met[at], out=free)
        np.maximum(free, done_back, out=free)
        np.add(free, takes[at], out=done)
        np.add(back_at[1:], met_back[at], out=free)
        np.maximum(free, done, out=free)
        np.add(free, takes_back[at], out=done_back)
        rounds[at % late], rounds_back[at % late] = done[-1], done_back[0]
        if at == units - 1 - group * v:
            before = done_back.copy()
        elif at == units - 1:
            last = done_back.copy()
    return done_back.max(axis=0), (last - before).max(axis=0)


def _in_slots(times: Num, unit: Ints, group: tuple[int, int], units: int) -> tuple[Num, Num]:
    """``(slots, devices, rows)`` seconds of what is run, and ``(slots, devices, 1)``: 0 where it waits for another.

    Args:
        unit: ``(slots, devices)``; what is none of ``units`` is not run, and waits for nothing (minus infinity).
        group: units of one chunk in turn, and how many of them there are.
    """
    device, turn = np.arange(unit.shape[1]), unit // group[0] % len(times)
    runs = (unit >= 0) & (unit < units) & (unit % group[0] < group[1])
    waits = runs & ((device > 0) | (turn > 0))
    padded = np.concatenate([times, np.zeros((1, *times.shape[1:]))])
    takes = padded[np.where(runs, turn, len(times)), device]
    return takes, np.where(waits, 0.0, -np.inf)[..., np.newaxis]
