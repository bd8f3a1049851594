"""The ranked table of an answer: sorted, a part at a time, and a row of texts for every plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from api.dashboard.searches.columns import BATCH, DEVICES, GROUPS, INTERVAL, OPTIONS, RANK, Column, Group
from api.dashboard.searches.objective_columns import RankedBy
from api.dashboard.words import gib
from api.schemas.text import Id

Json = dict[str, Any]

SHOWN = 100
"""Rows of a part: as many as are rendered and read at once."""
_MINUS = "\N{MINUS SIGN}"
_MOST_CHOSEN = 200
_BY_STEP = RankedBy()
_ALWAYS = (RANK, *(column for group in GROUPS for column in group.columns), INTERVAL)
# What says nothing where the axis is 1 in all plans.
_OF_AN_AXIS = {"cp": ("cp_by",), "ep": ("ep",), "etp": ("etp",)}
_COSTS = RankedBy(objective="cost", price=1.0).group
# By cost only where there is a price; else the ranks are in that order.
_SLUGS = [column.slug for column in (*_ALWAYS, *(_COSTS.columns if _COSTS else ()))]


def _column(slug: str) -> str:
    if slug not in _SLUGS:
        raise ValueError(f"it must be a column: {', '.join(_SLUGS)}")
    return slug


class TableQuery(BaseModel):
    """Which part of the table, in which order, and which plans are chosen so far."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    sort: Annotated[str, AfterValidator(_column)] = "rank"
    order: Literal["asc", "desc"] = "asc"
    start: Annotated[int, Field(ge=1, le=1_000_000, alias="from")] = 1
    plan: Annotated[list[Id], Field(max_length=_MOST_CHOSEN)] = []


USUAL = TableQuery()


@dataclass(frozen=True, kw_only=True)
class Header:
    """A column's header: a link that sorts by it.

    Attributes:
        first: of its group.
        sorted: ``ascending`` or ``descending`` where the rows are sorted by it, as ``aria-sort`` has it; else empty.
    """

    column: Column
    address: str
    first: bool
    sorted: str


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What a plan has in a column, and what stands beneath that."""

    text: str
    beneath: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A plan: cells in the order of the columns.

    Attributes:
        chosen: to be compared.
        slower: than the first, in per cent, per sequence where batches differ; ``than`` says it in words.
        why: the address that says why; empty for the first itself.
    """

    rank: int
    plan_id: str
    cells: tuple[Cell, ...]
    chosen: bool
    slower: str
    than: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """A part of an answer's plans.

    Attributes:
        told: what the plans are ranked by.
        per_sequence: batches differ, and so what is slower is so per sequence.
        elsewhere: chosen plans that are in no row of this part.
        earlier, later: addresses of the parts before and after; empty where there is none.
        start, end, count: the first and last place shown, of how many.
        order: the query string that has the plans in the same order, empty for the ranks.
    """

    groups: list[Group]
    told: str
    per_sequence: bool
    rank: Header
    headers: list[Header]
    rows: list[Row]
    elsewhere: list[str]
    earlier: str
    later: str
    start: int
    end: int
    count: int
    order: str


def table_of(path: str, plans: list[Json], query: TableQuery, by: RankedBy = _BY_STEP) -> Table:
    """The part of the plans that is asked for; the last one where it would lie beyond them.

    Args:
        path: of the page.
        plans: of an answer, at least one.
    """
    groups = _groups_of(plans, by)
    columns = [column for group in groups for column in group.columns]
    start = min(query.start, (len(plans) - 1) // SHOWN * SHOWN + 1)
    entries = in_order(plans, query, by)[start - 1 : start - 1 + SHOWN]
    shown = {entry["id"] for entry in entries}
    known = {entry["id"] for entry in plans}
    end = start - 1 + len(entries)
    return Table(
        groups=groups,
        told=by.told,
        per_sequence=by.several_batches,
        rank=_header(path, RANK, query, first=True),
        headers=[
            _header(path, column, query, first=column is group.columns[0])
            for group in groups
            for column in group.columns
        ],
        rows=[_row(entry, columns, plans[0], query, by) for entry in entries],
        elsewhere=[plan for plan in query.plan if plan in known - shown],
        earlier=_address(path, query, start=max(start - SHOWN, 1)) if start > 1 else "",
        later=_address(path, query, start=end + 1) if end < len(plans) else "",
        start=start,
        end=end,
        count=len(plans),
        order=_address("", query, start=1),
    )


def usable_gib(plans: list[Json]) -> str:
    """What a device has for a plan: the same for all of them."""
    return gib(plans[0]["prediction"]["memory"]["usable_bytes"])


def in_order(plans: list[Json], query: TableQuery, by: RankedBy = _BY_STEP) -> list[Json]:
    """Plans as the query sorts them; those of the same value in the order of their ranks, whichever way it goes."""
    columns = {column.slug: column for column in (*_ALWAYS, *(by.group.columns if by.group else ()))}
    column = columns.get(query.sort, RANK)
    return sorted(plans, key=column.value, reverse=query.order == "desc")


def _groups_of(plans: list[Json], by: RankedBy) -> list[Group]:
    """The columns that say something of these plans: options and experts where any plan has some, say."""
    leading = by.group
    left_out = {OPTIONS.slug} if not any(entry.get("options") for entry in plans) else set[str]()
    for axis, slugs in _OF_AN_AXIS.items():
        left_out |= set(slugs) if all(entry["plan"][axis] == 1 for entry in plans) else set()
    left_out |= set() if by.several_batches else {BATCH.slug}
    left_out |= {DEVICES.slug} if leading and DEVICES in leading.columns else set()
    usual = [
        replace(group, columns=tuple(column for column in group.columns if column.slug not in left_out))
        for group in GROUPS
    ]
    return [leading, *usual] if leading else usual


def _row(entry: Json, columns: list[Column], first: Json, query: TableQuery, by: RankedBy) -> Row:
    longer = _time(entry, by) / _time(first, by) - 1
    slower = f"{100 * longer:+.1f} %".replace("-", _MINUS)
    return Row(
        rank=entry["rank"],
        plan_id=entry["id"],
        cells=tuple(
            Cell(text=column.text(entry), beneath=column.beneath(entry) if column.beneath else "") for column in columns
        ),
        chosen=entry["id"] in query.plan,
        slower=slower,
        than="faster than" if slower[0] == _MINUS else "slower than",
        why="" if entry is first else f"/compare?{urlencode([('plan', first['id']), ('plan', entry['id'])])}",
    )


def _time(entry: Json, by: RankedBy) -> float:
    """Of a step, or of a sequence where batches differ."""
    step = float(entry["prediction"]["step_time_s"])
    return step / entry["plan"]["global_batch_size"] if by.several_batches else step


def _header(path: str, column: Column, query: TableQuery, *, first: bool) -> Header:
    is_sorted = query.sort == column.slug
    falling = query.order == "asc" if is_sorted else column.most_first
    order: Literal["asc", "desc"] = "desc" if falling else "asc"
    return Header(
        column=column,
        address=_address(path, query, sort=column.slug, order=order, start=1),
        first=first,
        sorted="" if not is_sorted else "ascending" if query.order == "asc" else "descending",
    )


def _address(path: str, query: TableQuery, **changed: Any) -> str:
    """What is as usual is left out, so that the same part always has the same address."""
    asked = query.model_copy(update=changed)
    said = {"sort": asked.sort, "order": asked.order, "from": asked.start}
    defaults = {"sort": USUAL.sort, "order": USUAL.order, "from": USUAL.start}
    found = urlencode({name: value for name, value in said.items() if value != defaults[name]})
    return f"{path}?{found}" if found else path
