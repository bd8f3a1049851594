"""Pipeline schedules: how long devices wait, and how many micro-batches they keep alive.

| schedule | waiting, in units of one micro-batch on one stage | alive on stage s |
|---|---|---|
| gpipe | p - 1 | m micro-batches (Huang 2018, arXiv 1811.06965) |
| 1f1b | p - 1 | min(m, p - s) micro-batches (Narayanan 2021, arXiv 2104.04473, section 2.2) |
| interleaved_1f1b | (p - 1) / v | min(m v, 2(p - s - 1) + (v - 1) p + 1) chunks (same; Megatron-Core's warm-up) |
| zb_h1 | (p - 1) / 3 | min(m, p - s) (Qi 2023, arXiv 2401.10241, table 2 with equal F, B, W) |
| zb_v | 0 | min(2 m, 2 p) chunks of half size (same authors, arXiv 2405.15362) |
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Ints, Num
from costmodel.spec.plan import SCHEDULES

CODE = {name: code for code, name in enumerate(SCHEDULES)}
WAITING_SHARE = {"gpipe": 1.0, "1f1b": 1.0, "interleaved_1f1b": 1.0, "zb_h1": 1.0 / 3.0, "zb_v": 0.0}
"""Share of the classic (p - 1)/v chunks of waiting that a schedule keeps.

DualPipe holds the parameters twice and is not priced: no framework offers it here, so the rules refuse it.
"""

_WAITING_BY_CODE = np.array([WAITING_SHARE.get(name, np.nan) for name in SCHEDULES])


def waiting_chunks(schedule: Ints, pp: Num, vpp: Num) -> Num:
    """Waiting of a device over the step, in units of its work for one micro-batch on one *device* (all chunks)."""
    waiting: Num = (pp - 1.0) / vpp * _WAITING_BY_CODE[schedule]
    return waiting


def chunks_alive(schedule: Ints, pp: Num, vpp: Num, num_microbatches: Num, stage: Num) -> Num:
    """Chunks whose activations are alive on ``stage`` at its fullest moment; a chunk is 1/v of the device's layers."""
    m, v = num_microbatches, vpp
    classic = np.minimum(m, pp - stage)
    interleaved = np.minimum(m * v, 2.0 * (pp - stage - 1.0) + (v - 1.0) * pp + 1.0)
    alive = np.where(v > 1.0, interleaved, classic)
    alive = np.where(schedule == CODE["gpipe"], m * v, alive)
    return np.where(schedule == CODE["zb_v"], np.minimum(m * v, pp * v), alive)
