"""What a collective costs as a function of its size: a line, or a measured curve in its place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costmodel.arrays import Num, num, per_stage
from costmodel.curves import NO_CURVE, NO_CURVES, CurveBook


class TierCost(NamedTuple):
    """What a collective of S bytes takes: ``latency_s + sqrt(S) s_per_root_byte + S s_per_byte``, or what a curve says.

    Attributes:
        s_per_root_byte: between small and large messages a pipeline of chunks is neither short nor full, which costs
            the root of what starts it and of what it transfers.
        curve: position of the measured curve in ``curves``; ``NO_CURVE`` where the shape was not measured.
        curve_bytes: bytes of the measured operation that load the links as one byte of this one does.
    """

    latency_s: Num
    s_per_byte: Num
    s_per_root_byte: Num = num(0.0)
    curve: Num = num(NO_CURVE)
    curve_bytes: Num = num(1.0)
    curves: CurveBook = NO_CURVES

    def seconds(self, size_bytes: Num) -> Num:
        """Seconds for ``size_bytes``; nothing is sent when there is nothing."""
        by_formula = self.latency_s + np.sqrt(size_bytes) * self.s_per_root_byte + size_bytes * self.s_per_byte
        line = np.where(size_bytes > 0, by_formula, 0.0)
        measured = size_bytes * self.curve_bytes
        return self.curves.corrected(line, self.curve, measured, self.s_per_byte / self.curve_bytes)

    def by_stage(self) -> TierCost:
        """The same for sizes of ``(rows, stages)``."""
        latency, per_root, per_byte = (
            per_stage(self.latency_s),
            per_stage(self.s_per_root_byte),
            per_stage(self.s_per_byte),
        )
        return TierCost(latency, per_byte, per_root, per_stage(self.curve), per_stage(self.curve_bytes), self.curves)
