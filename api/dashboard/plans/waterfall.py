"""The step as a waterfall: a bar for every part, each beginning where the one before ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.dashboard.terms import OF_TIME, Kind, time_by_kind, time_kind, time_name

# Kinds in the order of the waterfall: what computes first, then what waits.
_ORDER = {kind: place for place, kind in enumerate(OF_TIME)}


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A part of the step.

    Attributes:
        start, width: of the bar, in per cent of the whole step.
    """

    term: str
    name: str
    kind: Kind
    seconds: str
    share: float
    start: float
    width: float


def bars(time: Mapping[str, float], step_time_s: float) -> list[Bar]:
    """Kind by kind, the largest part of each first."""
    found: list[Bar] = []
    start, digits = 0.0, decimals(step_time_s)
    for term, value in sorted(time.items(), key=lambda part: (_ORDER[time_kind(part[0])], -part[1])):
        if not value:
            continue
        width = max(value, 0.0) / step_time_s
        found.append(
            Bar(
                term=term,
                name=time_name(term),
                kind=time_kind(term),
                seconds=f"{value:.{digits}f}",
                share=value / step_time_s,
                start=round(100 * start, 3),
                width=round(100 * width, 3),
            )
        )
        start += width
    return found


def decimals(step_time_s: float) -> int:
    """So many that a thousandth of the step shows."""
    return 3 if step_time_s >= 1.0 else 4 if step_time_s >= 0.1 else 5


def by_kind(time: Mapping[str, float], step_time_s: float) -> list[tuple[Kind, float, float]]:
    """Seconds and share of each kind."""
    return [(kind, value, value / step_time_s) for kind, value in time_by_kind(time).items()]
