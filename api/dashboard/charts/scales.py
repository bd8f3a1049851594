"""From values to places on an axis, and where its labels stand."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from api.dashboard.charts.chart import Axis

Ticks = tuple[tuple[float, str], ...]
"""Value and label."""

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_ABOUT = 5  # labels on an axis
_MARGIN = 0.04  # of the span, beside the outermost values


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Where a value lies between ``start`` and ``end``, in pixels.

    Attributes:
        low, high: the values at both ends, in log10 where ``log``.
    """

    start: float
    end: float
    low: float
    high: float
    log: bool
    ticks: Ticks

    def __call__(self, value: float) -> float:
        shown = math.log10(value) if self.log else value
        share = (shown - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)


def scale_of(axis: Axis, values: Iterable[float], start: float, end: float) -> Scale:
    """The scale on which all the values lie; finite ones, above 0 on a log axis."""
    if axis.names:
        names = tuple((float(place), name) for place, name in enumerate(axis.names))
        return Scale(start=start, end=end, low=-0.5, high=len(axis.names) - 0.5, log=False, ticks=names)
    low, high = _apart(axis, *_ends(axis, values))
    margin = _MARGIN * (high - low)
    stands = axis.from_zero and not axis.log and low == 0.0  # bars, on the axis itself
    low, high = low if stands else low - margin, high + margin
    ticks = axis.ticks or (_log_ticks(low, high) if axis.log else _ticks(low, high))
    shown = tuple((tick, label(tick)) for tick in ticks if low <= (math.log10(tick) if axis.log else tick) <= high)
    return Scale(start=start, end=end, low=low, high=high, log=axis.log, ticks=shown)


def _ends(axis: Axis, values: Iterable[float]) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value) and (value > 0 or not axis.log)]
    if axis.log:
        return (math.log10(min(known)), math.log10(max(known))) if known else (0.0, 1.0)
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    return (min(low, 0.0), max(high, 0.0)) if axis.from_zero else (low, high)


def _apart(axis: Axis, low: float, high: float) -> tuple[float, float]:
    """Ends with a span between them."""
    if high - low > 1e-12 * max(abs(low), abs(high), 1.0):
        return low, high
    span = 0.5 if axis.log else max(abs(high) * 0.1, 0.5)
    return (0.0 if axis.from_zero and not axis.log else low - span), high + span


def label(value: float) -> str:
    """A tick's label: as many digits as it has."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _ticks(low: float, high: float) -> tuple[float, ...]:
    rough = (high - low) / _ABOUT
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in _STEPS if power * factor >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(round(place * step, 12) for place in range(first, last + 1))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    span = high - low
    factors = (1.0, 2.0, 5.0) if span < 2.5 else (1.0,)
    every = max(1, math.ceil(span / (2 * _ABOUT)))
    powers = [power for power in range(math.floor(low), math.ceil(high) + 1) if power % every == 0]
    found = tuple(f * 10.0**power for power in powers for f in factors if low <= power + math.log10(f) <= high)
    # Less than a factor of two or so: round values, as on a linear axis.
    return found if len(found) >= 3 else _ticks(10.0**low, 10.0**high)
