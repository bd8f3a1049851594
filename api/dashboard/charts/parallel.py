"""Parallel coordinates as lines at places in a picture; ``templates/parallel.html`` writes them as SVG."""

from __future__ import annotations

from dataclasses import dataclass

from api.dashboard.charts.chart import WIDE, Line, ParallelCoordinates
from api.dashboard.charts.scales import Ticks, scale_of

_SIDE, _TOP, _BOTTOM = 44, 34, 14
_LEAST_APART = 13.0  # pixels between labels


@dataclass(frozen=True, kw_only=True)
class Upright:
    """An axis at ``x``; ticks are places and labels."""

    x: float
    title: str
    unit: str
    ticks: Ticks


@dataclass(frozen=True, kw_only=True)
class Course:
    """A line of the chart as a path."""

    line: Line
    path: str


@dataclass(frozen=True, kw_only=True)
class ParallelDrawing:
    """A picture of ``width`` by ``height``; courses that stand out come last, so that they lie on top."""

    width: int
    height: int
    top: int
    bottom: int
    axes: list[Upright]
    courses: list[Course]


def parallel_drawing_of(chart: ParallelCoordinates) -> ParallelDrawing:
    """Everything at its place."""
    bottom = chart.height - _BOTTOM
    between = (WIDE - 2 * _SIDE) / max(len(chart.axes) - 1, 1)
    places = [round(_SIDE + between * number, 2) for number in range(len(chart.axes))]
    scales = [
        scale_of(axis, [value for line in chart.lines if (value := line.values[number]) is not None], bottom, _TOP)
        for number, axis in enumerate(chart.axes)
    ]
    axes = [
        Upright(
            x=x,
            title=axis.title,
            unit=axis.unit,
            ticks=_apart([(scale(tick), label) for tick, label in scale.ticks]),
        )
        for x, axis, scale in zip(places, chart.axes, scales, strict=True)
    ]
    courses = [
        Course(
            line=line,
            path=_path(
                [
                    (x, None if value is None else scale(value))
                    for x, scale, value in zip(places, scales, line.values, strict=True)
                ]
            ),
        )
        for line in sorted(chart.lines, key=lambda line: line.strong)
    ]
    return ParallelDrawing(width=WIDE, height=chart.height, top=_TOP, bottom=bottom, axes=axes, courses=courses)


def _apart(ticks: list[tuple[float, str]]) -> Ticks:
    """Those that can be read, from the lowest up."""
    found: list[tuple[float, str]] = []
    for place, label in sorted(ticks, reverse=True):
        if not found or found[-1][0] - place >= _LEAST_APART:
            found.append((place, label))
    return tuple(found)


def _path(points: list[tuple[float, float | None]]) -> str:
    pieces: list[str] = []
    step = "M"
    for x, y in points:
        if y is None:
            step = "M"
            continue
        pieces.append(f"{step}{x:g} {y:g}")
        step = "L"
    return "".join(pieces)
