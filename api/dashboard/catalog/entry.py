"""What a page of one entry shows, whatever kind it is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.dashboard.catalog.tiers import Picture


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table.

    Attributes:
        figure: whether it is a number, which stands on the right.
        bar: of 100, how long the bar beside it is; None for none.
    """

    text: str
    link: str = ""
    code: bool = False
    figure: bool = False
    bar: float | None = None


@dataclass(frozen=True, kw_only=True)
class Column:
    """The head of a column."""

    name: str
    unit: str = ""
    figure: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with a heading.

    Attributes:
        id: of its heading; letters and hyphens.
        prose: whether its last column is a sentence.
    """

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Cell, ...]]
    note: str = ""
    prose: bool = False


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of the catalog.

    Attributes:
        about: in a sentence.
        facts: names and values.
        caveats: what to mind about the numbers.
        links: text and address.
        versions: those to choose from, and ``version`` the one that is shown; of frameworks only.
    """

    kind: str
    name: str
    about: str
    facts: list[tuple[str, str]]
    source: str
    retrieved: str
    tables: list[Table]
    caveats: list[str]
    aliases: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    picture: Picture | None = None
    versions: tuple[str, ...] = ()
    version: str = ""


def text(value: object, link: str = "") -> Cell:
    """A cell of words."""
    return Cell(text=str(value), link=link)


def figure(value: float | None, form: str = ",.0f") -> Cell:
    """A cell with a number; empty for none."""
    return Cell(text="" if value is None else format(value, form), figure=True)


def measure(value: float | None, unit: float) -> Cell:
    """A cell with so many of a unit; empty for none."""
    return Cell(text="" if value is None else short(value / unit), figure=True)


def billions(count: int) -> str:
    """Parameters in billions, to three digits or so."""
    value = count / 1e9
    return f"{value:,.0f} B" if value >= 100 else f"{value:.1f} B" if value >= 10 else f"{value:.2f} B"


def gigabytes_per_s(value: float | None) -> str:
    """A bandwidth; empty for none."""
    return "" if value is None else f"{short(value / 1e9)} GB/s"


def short(value: float) -> str:
    """Four digits where there are fewer before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
