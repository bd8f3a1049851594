"""The points of a curve: what is known at each device count, and a row of texts for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from api.dashboard.scaling.question import Curve
from api.dashboard.words import gib, number, percent, seconds
from api.questions import search_request
from api.schemas.requests import SearchBody
from api.state import State
from api.validation import parts_of
from costmodel.errors import InvalidInput, UnreadableFile
from planner.question import Question
from planner.search.request import SearchRequest
from planner.service import standing
from planner.sweeping import NOT_ASKED, REFUSED, point_of, with_efficiency
from planner.wording import mesh_in_words, sharding

Json = dict[str, Any]

LIVE = ("queued", "running")
_ASK_AGAIN = frozenset({NOT_ASKED, "failed", "cancelled"})
_TOKENS = 1e9
_SAID = {
    "optimal": "proven best",
    "feasible": "cut by the deadline",
    "infeasible": "nothing fits",
    "unknown": "cut, no plan",
    "queued": "waiting",
    "running": "searching",
    "failed": "failed",
    "cancelled": "cancelled",
    REFUSED: "can't be asked",
    NOT_ASKED: "not asked",
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """A figure of the best plan at every count.

    Attributes:
        text: of a point that has a plan.
    """

    name: str
    unit: str
    meaning: str
    text: Callable[[Json], str]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A device count.

    Attributes:
        said: how it stands, in words; ``told`` says why there is no plan, and is empty where there is one.
        figures: texts in the order of the columns.
    """

    devices: str
    said: str
    told: str
    search_id: str | None
    plan_id: str | None
    mesh: str
    figures: tuple[str, ...]


_COLUMNS = (
    Column(
        name="Step",
        unit="s",
        meaning="Predicted time of one optimizer step.",
        text=lambda point: seconds(point["prediction"]["step_time_s"]),
    ),
    Column(
        name="Interval",
        unit="s",
        meaning="Where the step time is expected to lie.",
        text=lambda point: "–".join(seconds(end) for end in point["prediction"]["step_time_interval_s"]),
    ),
    Column(
        name="Efficiency",
        unit="%",
        meaning="Tokens per second of a device at hand, over those of the first count with a plan.",
        text=lambda point: percent(point["efficiency"]),
    ),
    Column(
        name="Tokens",
        unit="/s/device",
        meaning="Tokens per second and device that the plan uses.",
        text=lambda point: number(point["prediction"]["tokens_per_s_per_device"]),
    ),
    Column(
        name="MFU",
        unit="%",
        meaning="The model's FLOPs over the accelerators' peak; recomputation not counted.",
        text=lambda point: percent(point["prediction"]["mfu"]),
    ),
    Column(
        name="Peak",
        unit="GiB",
        meaning="Memory allocated on the fullest device.",
        text=lambda point: gib(point["prediction"]["memory"]["peak_bytes"]),
    ),
    Column(
        name="1e9 tokens",
        unit="device-hours",
        meaning="Hours of the devices that the plan uses, for 1e9 tokens.",
        text=lambda point: f"{point['device_hours_per_1e9_tokens']:,.1f}",
    ),
)
_COST = Column(
    name="1e9 tokens",
    unit="cost",
    meaning="Cost of 1e9 tokens, in the currency of the price.",
    text=lambda point: "" if (cost := point["cost_per_1e9_tokens"]) is None else f"{cost:,.2f}",
)
_USED = Column(
    name="Used",
    unit="devices",
    meaning="Devices that the plan uses, of those at hand.",
    text=lambda point: number(point["plan"]["devices_used"]),
)


def points_of(state: State, curve: Curve) -> list[Json]:
    """Every count as ``planner sweep --json`` has its points, from the store alone.

    ``status`` is also ``not_asked``, ``queued``, ``running``, ``failed`` or ``cancelled``.
    """
    bodies = curve.bodies()
    requests: list[SearchRequest | InvalidInput] = [_request(state, body) for body in bodies]
    known = iter(standing(state.store, [request for request in requests if isinstance(request, SearchRequest)]))
    points = [
        point_of(_question(body), request if isinstance(request, InvalidInput) else next(known))
        for body, request in zip(bodies, requests, strict=True)
    ]
    return [point | {"device_hours_per_1e9_tokens": device_hours(point)} for point in with_efficiency(points)]


def missing_in(points: list[Json], curve: Curve) -> list[SearchBody]:
    """The questions that nobody asked, or that ended without an answer."""
    return [body for point, body in zip(points, curve.bodies(), strict=True) if is_missing(point)]


def is_missing(point: Json) -> bool:
    """Whether nobody asked it, or it ended without an answer."""
    return point["status"] in _ASK_AGAIN


def refusal_of(points: list[Json]) -> tuple[str, str] | None:
    """Field and words of what is wrong where no count at all can be asked."""
    if any(point["status"] != REFUSED for point in points):
        return None
    return parts_of(points[0]["reason"])[0], points[0]["told"].partition(": ")[2]


def device_hours(point: Json) -> float | None:
    """Of the devices that the best plan uses, for 1e9 tokens."""
    if point["tokens_per_s"] is None:
        return None
    return float(point["plan"]["devices_used"] * _TOKENS / point["tokens_per_s"] / 3600)


def columns_of(points: list[Json]) -> list[Column]:
    """The figures that say something of these points: a cost where there is a price, devices where some stay idle."""
    known = [point for point in points if point["plan"]]
    idle = any(point["plan"]["devices_used"] != point["devices"] for point in known)
    priced = any(point["cost_per_1e9_tokens"] is not None for point in known)
    return [*_COLUMNS, *([_COST] if priced else []), *([_USED] if idle else [])]


def rows_of(points: list[Json]) -> list[Row]:
    """A row for every point."""
    columns = columns_of(points)
    return [
        Row(
            devices=number(point["devices"]),
            said=_SAID[point["status"]],
            told="" if point["plan"] else str(point["told"]),
            search_id=point["search_id"],
            plan_id=point["plan_id"],
            mesh=mesh_of(point["plan"]) if point["plan"] else "",
            figures=tuple(column.text(point) for column in columns) if point["plan"] else (),
        )
        for point in points
    ]


def mesh_of(plan: Json) -> str:
    """A plan's mesh, micro-batch, sharding and recompute in a line."""
    more = [f"mbs {plan['micro_batch_size']}", f"ZeRO {sharding(plan)}"]
    if plan["recompute"] != "none":
        more.append(f"{plan['recompute']} recompute")
    return ", ".join([mesh_in_words(plan), *more])


def _request(state: State, body: SearchBody) -> SearchRequest | InvalidInput:
    try:
        return search_request(body, state.settings)
    except UnreadableFile:
        # One of the server's own, and no fault of the question.
        raise
    except InvalidInput as error:
        return error


def _question(body: SearchBody) -> Question:
    """What a point says of its question; the form has names alone."""
    return Question(
        model=str(body.model),
        cluster=str(body.cluster),
        devices=body.devices,
        global_batch_size=body.global_batch_size,
        seq_len=body.seq_len,
    )
