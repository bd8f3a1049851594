"""The three parts of ZeRO++: what they put on the wire, and the passes over memory that quantising takes.

Wang 2023, arXiv 2306.10209: weights are gathered in blocks of INT8 (qwZ, section 3.1), the backward pass gathers from
a second copy inside the node (hpZ, 3.2), gradients are reduced in INT4 by an all-to-all inside the node and one across
(qgZ, 3.3). Scales of blocks are left out: below 2 % at 256 or more elements a block.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools, Num
from costmodel.facts import Facts
from costmodel.kernels import memory_bound_s
from costmodel.spec.options import ZERO_PLUS

PARTS: tuple[str, ...] = ZERO_PLUS

WEIGHT_BYTES = 1.0
"""INT8 on the wire, in place of 16 bits."""
GRADIENT_BYTES = 0.5
"""INT4 on the wire, in place of 16 bits."""
_WIDE_BYTES = 2.0
"""Before and after: 16 bits."""


def has(code: Num, part: str) -> Bools:
    """Whether the codes of ``zero_plus`` have a part."""
    return np.asarray(np.floor_divide(code, 2.0 ** PARTS.index(part)) % 2.0 == 1.0)


def quantised_gather_s(f: Facts, params: Num) -> Num:
    """Seconds of casting around one gather of ``params`` parameters: each is read narrow and written wide.

    What a rank quantises before is its own shard, which is little beside that.
    """
    return memory_bound_s(f, params * (WEIGHT_BYTES + _WIDE_BYTES))


def quantised_reduction_s(f: Facts, params: Num, inside: Num) -> Num:
    """Seconds of casting around one reduction: wide gradients are read and written narrow; what arrives is read once.

    Args:
        inside: ranks of the exchange inside the node, which leaves each of them a share that is cast again.
    """
    first = _WIDE_BYTES + GRADIENT_BYTES
    return memory_bound_s(f, params * (first + GRADIENT_BYTES + (GRADIENT_BYTES + GRADIENT_BYTES) / inside))
