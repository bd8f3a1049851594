"""Measured curves of collectives, looked up by shape and interpolated in the size: elementwise, like every term.

Over 41 published sweeps a table with knots at every fourfold size, interpolated log-log, is off by 2.5 % in the median,
where the best line ``a + S/B`` is off by 14 %. A curve holds for its own operation and shape only: two nodes say
nothing about four.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log

import numpy as np

from costmodel.arrays import Num, num
from costmodel.spec.collective import CollectiveOp, MeasuredCollective

NO_CURVE = -1


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Seconds of one operation on one shape.

    Attributes:
        ranks: of the group; ``domains``: scale-up domains that it spans.
        log_bytes, log_seconds: the knots, natural logarithms, both ascending.
    """

    op: CollectiveOp
    ranks: int
    domains: int
    log_bytes: tuple[float, ...]
    log_seconds: tuple[float, ...]

    @classmethod
    def of(cls, measured: MeasuredCollective) -> Curve:
        """The curve through measured points. What was slower than a larger message was disturbed: it counts as that."""
        risen = np.minimum.accumulate(num(measured.seconds)[::-1])[::-1]
        ranks, domains = measured.ranks, measured.domains
        if measured.op == "send_recv":  # neighbours: a pair inside a domain, or one that leaves it
            ranks, domains = 2, min(domains, 2)
        return cls(
            op=measured.op,
            ranks=ranks,
            domains=domains,
            log_bytes=tuple(log(size) for size, _ in measured.points),
            log_seconds=tuple(np.log(risen).tolist()),
        )


class CurveBook:
    """Sets of curves, one set per measured fabric; a curve is known by its position over all sets.

    Attributes:
        sets: as given; facts carry for every row the position of its set, or ``NO_CURVE``.
    """

    def __init__(self, sets: Iterable[tuple[Curve, ...]] = ()) -> None:
        self.sets = tuple(sets)
        self._placed = [(of, curve) for of, curves in enumerate(self.sets) for curve in curves]

    def find(self, op: CollectiveOp, curve_set: Num, group: Num, inside: Num, within: Num) -> Num:
        """The curve of each row, or ``NO_CURVE``.

        Args:
            curve_set: position of the row's set.
            group: ranks.
            inside: ranks in one scale-up domain.
            within: ranks in one unit of the network tier around the domains; a curve knows no tier beyond it.
        """
        found = np.full(np.broadcast(curve_set, group).shape, float(NO_CURVE))
        if not self._placed:
            return found
        domains, reached = np.ceil(group / inside), within >= group
        for position, (of, curve) in enumerate(self._placed):
            if curve.op == op:
                same = (curve_set == of) & (group == curve.ranks) & (domains == curve.domains)
                found = np.where(same & reached, float(position), found)
        return found

    def corrected(self, line: Num, curve: Num, size: Num, s_per_byte: Num) -> Num:
        """``line``, but what was measured where there is a curve.

        Below the smallest measured size it takes as long as that; beyond the largest, ``s_per_byte`` more.

        Args:
            line: seconds by formula; 0 stays 0.
            size: bytes of the measured operation.
        """
        if not self._placed or not (curve >= 0).any():
            return line
        shape = np.broadcast_shapes(line.shape, curve.shape)
        seconds = np.array(np.broadcast_to(line, shape))
        rows = (np.broadcast_to(curve, shape) >= 0) & (seconds > 0)
        which, sizes, slope = (np.broadcast_to(value, shape)[rows] for value in (curve, size, s_per_byte))
        position, found = np.log(sizes), np.empty_like(sizes)
        for one in np.unique(which):
            knots, same = self._placed[int(one)][1], which == one
            inside = np.exp(np.interp(position[same], knots.log_bytes, knots.log_seconds))
            found[same] = inside + np.maximum(sizes[same] - exp(knots.log_bytes[-1]), 0.0) * slope[same]
        seconds[rows] = found
        return seconds


NO_CURVES = CurveBook()
