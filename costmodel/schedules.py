"""Pipeline schedules: how long devices wait, how many micro-batches they keep alive, and which stages they hold.

F and B are the seconds of a device's forward and whole backward pass of one micro-batch (over all its chunks), W those
of B that make the gradients of weights, which zero-bubble schedules put off; p devices, v chunks, m micro-batches.

| schedule | waiting | alive on device s |
|---|---|---|
| gpipe | (p - 1)(F + B) | m micro-batches (Huang 2018, arXiv 1811.06965) |
| 1f1b | (p - 1)(F + B) | min(m, p - s) micro-batches (Narayanan 2021, arXiv 2104.04473, section 2.2) |
| interleaved_1f1b | (p - 1)(F + B)/v | min(m v, 2(p - s - 1) + (v - 1) p + 1) chunks (same; Megatron-Core's warm-up) |
| zb_h1 | (p - 1)(F + B - W) - (min(m, p) - 1) W | min(m, p): later devices put off more W (Qi 2023, arXiv 2401.10241) |
| zb_v | (p - 1) max(F, B - W)/2 | min(2 m, 2 p) half chunks (Qi 2024, arXiv 2405.15362, as torch executes it) |
| dualpipe | (p/2 - 1)(F + 2 B - 3 W) | p + 1 stages of the two it holds (DeepSeek-V3, arXiv 2412.19437, table 2) |
| dualpipe_v | (p - 1)(F + 2 B - 3 W)/2 | 2 p + 1 half chunks: the same of 2 p stages (DeepSeek's repository DualPipe) |

Between the first and the last kernel of a device zb_v leaves no gap. What it waits is that devices start one after
another and the optimizer steps once all have ended: the authors' way around that, an optimizer that checks afterwards,
is in no framework here. With so few micro-batches that these do not fill the pipeline it waits (p - 1)(F + B - W) -
(m - 1) F, where that is more.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodel.arrays import Bools, Ints, Num
from costmodel.spec.plan import SCHEDULES, Schedule
from costmodel.stages import Placement

CODE: Mapping[str, int] = {name: code for code, name in enumerate(SCHEDULES)}

_PLACEMENT = {"zb_v": Placement.V, "dualpipe_v": Placement.V, "dualpipe": Placement.BOTH_WAYS}
_PLACEMENT_BY_CODE = np.array([int(_PLACEMENT.get(name, Placement.LOOP)) for name in SCHEDULES], dtype=np.int64)
_SPLIT_BACKWARD = np.array([name in ("zb_h1", "zb_v", "dualpipe", "dualpipe_v") for name in SCHEDULES])


def placement_of(schedule: Schedule) -> Placement:
    """How a schedule lays stages over devices."""
    return _PLACEMENT.get(schedule, Placement.LOOP)


def placements(schedule: Ints) -> Ints:
    """The same for codes of schedules."""
    return np.asarray(_PLACEMENT_BY_CODE[schedule])


def waiting_s(
    schedule: Ints, pp: Num, vpp: Num, num_microbatches: Num, *, forward: Num, backward: Num, weights: Num
) -> Num:
    """Seconds that a device waits over the step.

    Args:
        forward, backward, weights: F, B and W of the mean device for one micro-batch.
    """
    waiting: Num = (pp - 1.0) / vpp * (forward + backward)
    if not _SPLIT_BACKWARD[schedule].any():
        return waiting
    overlapped = np.maximum(forward + 2.0 * backward - 3.0 * weights, 0.0)
    inputs = backward - weights
    # One micro-batch alone goes there and back; those that follow fill the waiting with what the schedule puts off.
    alone, others = (pp - 1.0) * (forward + inputs), num_microbatches - 1.0
    for name, split in (
        ("zb_h1", alone - np.minimum(others, pp - 1.0) * weights),
        ("zb_v", np.maximum((pp - 1.0) * np.maximum(forward, inputs) / 2.0, alone - others * forward)),
        ("dualpipe", (pp / 2.0 - 1.0) * overlapped),
        ("dualpipe_v", (pp - 1.0) * overlapped / 2.0),
    ):
        waiting = np.where(schedule == CODE[name], np.where(pp > 1.0, np.maximum(split, 0.0), 0.0), waiting)
    return waiting


def least_waiting(schedule: Ints, pp: Num, vpp: Num) -> Num:
    """No more than what a device waits, in units of F + B; what a split backward pass leaves may be nothing."""
    return np.where(_SPLIT_BACKWARD[schedule], 0.0, (pp - 1.0) / vpp)


def may_wait(schedule: Ints, pp: Ints, vpp: Ints) -> Bools:
    """The plans whose chunks may wait for each other where they are unlike (``costmodel.interleaving``)."""
    return np.asarray((schedule == CODE["interleaved_1f1b"]) & (pp > 1) & (vpp > 1))


def chunks_held(schedule: Ints, vpp: Num) -> Num:
    """Chunks on each device: both ways, a stage of each direction."""
    return np.where(schedule == CODE["dualpipe"], 2.0, vpp)


def chunks_alive(schedule: Ints, pp: Num, vpp: Num, num_microbatches: Num, stage: Num) -> Num:
    """Chunks whose activations are alive on ``stage`` at its fullest moment, each one of ``chunks_held``."""
    m, v = num_microbatches, vpp
    classic = np.minimum(m, pp - stage)
    interleaved = np.minimum(m * v, 2.0 * (pp - stage - 1.0) + (v - 1.0) * pp + 1.0)
    alive = np.where(v > 1.0, interleaved, classic)
    if not (_SPLIT_BACKWARD[schedule] | (schedule == CODE["gpipe"])).any():
        return alive
    for name, others in (
        ("gpipe", m * v),
        ("zb_h1", np.minimum(m, pp)),
        ("zb_v", np.minimum(m * v, pp * v)),
        ("dualpipe", np.minimum(m, pp + 1.0)),
        ("dualpipe_v", np.minimum(m * v, pp * v + 1.0)),
    ):
        alive = np.where(schedule == CODE[name], others, alive)
    return alive
