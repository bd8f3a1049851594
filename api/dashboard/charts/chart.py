"""What a chart shows, apart from how it is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["points", "line", "bars"]

WIDE, HALF = 760, 560
"""Pixels of charts that have a page's width, or half of it, for their own; ``planner.css`` knows both."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis.

    Attributes:
        unit: of the values; empty for counts.
        log: powers have equal distances; every value has to be above 0.
        from_zero: zero is in sight, as bars need it.
        ticks: where labels stand; by default at round values.
        names: of categories, which lie at 0, 1, 2 and so on; no scale then.
    """

    title: str
    unit: str = ""
    log: bool = False
    from_zero: bool = False
    ticks: tuple[float, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Title and unit."""
        return f"{self.title}, {self.unit}" if self.unit else self.title


@dataclass(frozen=True, kw_only=True)
class Series:
    """Values of one kind. All tuples that are not empty are as long as ``x``.

    Attributes:
        x: positions; places of categories where the axis has names.
        y: values; None where there is none.
        kind: bars at the same ``x`` stand on each other, in the order of the series.
        said: what a reader is told of each value; shown when it is pointed at.
        links: addresses that each value leads to.
        low, high: ends of its interval.
        hue: which colour of the palette, 0 to 7; the same thing has the same hue in all charts of a page.
        strong: places of values that stand out.
        dots: whether a line has a dot at each value.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    kind: Kind = "points"
    said: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    hue: int = 0
    strong: frozenset[int] = frozenset()
    dots: bool = True


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A horizontal line with a name: a capacity, a goal."""

    value: float
    name: str


@dataclass(frozen=True, kw_only=True)
class Diagonal:
    """The line on which both values are equal, for predicted against measured."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart.

    Attributes:
        id: unique on its page; letters and hyphens.
        told: what the picture shows, for those who don't see it.
        width, height: in pixels. It is drawn somewhat smaller or larger, as there is room, and its text can be read.
    """

    id: str
    title: str
    told: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    diagonal: Diagonal | None = None
    width: int = WIDE
    height: int = 300

    @property
    def linked(self) -> bool:
        """Whether any value leads anywhere."""
        return any(series.links for series in self.series)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One thing through all axes.

    Attributes:
        values: one for each axis; None where there is none. Places of categories where the axis has names.
        said: what a reader is told when it is pointed at.
        strong: it stands out, and lies on top.
    """

    values: tuple[float | None, ...]
    said: str
    link: str = ""
    hue: int = 0
    strong: bool = False


@dataclass(frozen=True, kw_only=True)
class ParallelCoordinates:
    """Many values of many things: an upright axis for each value, a line for each thing.

    There is no zooming into it: Plotly draws such lines with code that it makes as it runs, which our policy forbids.

    Attributes:
        id: unique on its page; letters and hyphens.
        told: what the picture shows, for those who don't see it.
        height: in pixels, at a width of ``WIDE``.
    """

    id: str
    title: str
    told: str
    axes: tuple[Axis, ...]
    lines: tuple[Line, ...]
    height: int = 300
