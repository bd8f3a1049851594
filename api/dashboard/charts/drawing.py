"""A chart as shapes at places in a picture; ``templates/chart.html`` writes them as SVG."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from api.dashboard.charts.chart import Chart, Series
from api.dashboard.charts.scales import Scale, Ticks, scale_of

LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 44
BAR = 0.72
"""How wide a bar is, of the distance between categories."""
_WIDEST_BAR = 96.0  # pixels: where there are few categories
_MOST_NAMES = 24  # labels of categories that find a place side by side


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A point, a bar or an interval. ``link`` may be empty."""

    x: float
    y: float
    width: float = 0.0
    height: float = 0.0
    said: str = ""
    link: str = ""
    strong: bool = False


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The shapes of a series.

    Attributes:
        path: of a line; empty where there is none.
        whiskers: intervals, ``height`` long.
    """

    name: str
    kind: str
    hue: int
    shapes: list[Shape] = field(default_factory=list)
    whiskers: list[Shape] = field(default_factory=list)
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A picture of ``width`` by ``height``, with the box of the values inside."""

    chart: Chart
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    layers: list[Layer]
    marks: list[tuple[float, str]]
    diagonal: tuple[float, float, float, float] | None


def drawing_of(chart: Chart) -> Drawing:
    """Everything at its place."""
    x, y = scales_of(chart)
    return Drawing(
        chart=chart,
        width=chart.width,
        height=chart.height,
        left=LEFT,
        right=chart.width - RIGHT,
        top=TOP,
        bottom=chart.height - BOTTOM,
        x_ticks=[(x(tick), label) for tick, label in thinned(x.ticks)],
        y_ticks=[(y(tick), label) for tick, label in y.ticks],
        layers=_layers(chart, x, y),
        marks=[(y(mark.value), mark.name) for mark in chart.marks],
        diagonal=_diagonal(x, y) if chart.diagonal else None,
    )


def scales_of(chart: Chart) -> tuple[Scale, Scale]:
    """Both axes, on which all of the chart has its place."""
    values = [value for top in _tops(chart) for value in top]
    values += [end for series in chart.series for end in (*series.low, *series.high)]
    values += [mark.value for mark in chart.marks]
    positions = [position for series in chart.series for position in series.x]
    if chart.diagonal:
        positions, values = [*positions, *values], [*positions, *values]
    x = scale_of(chart.x, positions, LEFT, chart.width - RIGHT)
    return x, scale_of(chart.y, values, chart.height - BOTTOM, TOP)


def thinned(ticks: Ticks) -> Ticks:
    """As many as find a place side by side."""
    return ticks[:: -(-len(ticks) // _MOST_NAMES)] if ticks else ticks


def _tops(chart: Chart) -> list[list[float]]:
    """The values that must be in sight: of bars the ends of the stacks."""
    stacked: dict[float, float] = defaultdict(float)
    found: list[list[float]] = []
    for series in chart.series:
        if series.kind == "bars":
            for position, value in zip(series.x, series.y, strict=True):
                stacked[position] += value or 0.0
            found.append(list(stacked.values()))
        else:
            found.append([value for value in series.y if value is not None])
    return found


def _layers(chart: Chart, x: Scale, y: Scale) -> list[Layer]:
    ends: dict[float, float] = defaultdict(float)
    return [_bars(series, x, y, ends) if series.kind == "bars" else _points(series, x, y) for series in chart.series]


def _bars(series: Series, x: Scale, y: Scale, ends: dict[float, float]) -> Layer:
    layer = Layer(name=series.name, kind="bars", hue=series.hue)
    width = min(round(BAR * abs(x(1.0) - x(0.0)), 2), _WIDEST_BAR)
    for place, (position, value) in enumerate(zip(series.x, series.y, strict=True)):
        start = ends[position]
        ends[position] = start + (value or 0.0)
        if not value:
            continue
        top, foot = sorted((y(start), y(ends[position])))
        bar = Shape(x=round(x(position) - width / 2, 2), y=top, width=width, height=round(foot - top, 2))
        layer.shapes.append(_told(bar, series, place))
    return layer


def _points(series: Series, x: Scale, y: Scale) -> Layer:
    layer = Layer(name=series.name, kind=series.kind, hue=series.hue)
    path: list[str] = []
    step = "M"
    for place, (position, value) in enumerate(zip(series.x, series.y, strict=True)):
        if value is None:
            step = "M"
            continue
        at = (x(position), y(value))
        path.append(f"{step}{at[0]:g} {at[1]:g}")
        step = "L"
        if series.dots:
            layer.shapes.append(_told(Shape(x=at[0], y=at[1]), series, place))
        if series.low:
            high, low = y(series.high[place]), y(series.low[place])
            layer.whiskers.append(Shape(x=at[0], y=high, height=round(low - high, 2)))
    return replace(layer, path=" ".join(path)) if series.kind == "line" else layer


def _told(shape: Shape, series: Series, place: int) -> Shape:
    return replace(
        shape,
        said=series.said[place] if series.said else "",
        link=series.links[place] if series.links else "",
        strong=place in series.strong,
    )


def _diagonal(x: Scale, y: Scale) -> tuple[float, float, float, float]:
    low, high = max(x.low, y.low), min(x.high, y.high)
    ends = (10.0**low, 10.0**high) if x.log else (low, high)
    return (x(ends[0]), y(ends[0]), x(ends[1]), y(ends[1]))
