"""Lists of plans, filtered and sorted.

A page is found in one of two ways. Most filters let many plans through: then the page is complete after a short walk
along the index of the sort column. A filter that lets few through would make that walk long, so after a number of
plans it ends, and the plans that pass the filter are gathered first and sorted then. No database has to guess.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Row, Select, select, tuple_

from costmodel.errors import InvalidInput, UnknownName
from db.records import PLAN_SORTS, ListedPlan, Page, PlanFilter
from db.repositories.statements import identity_of, moment_of, number_of, table_of
from db.tables import ClusterRow, ModelRow, PlanRow, ScenarioRow, SearchPlanRow

AXES = (
    "tp",
    "pp",
    "vpp",
    "cp",
    "cp_comm_type",
    "ep",
    "etp",
    "dp",
    "dp_replicate",
    "dp_shard",
    "zero_stage",
    "micro_batch_size",
    "num_microbatches",
    "devices_used",
    "schedule",
    "recompute",
    "offload",
)
"""Fields of a plan that are columns."""
FIGURES = ("step_time_s", "tokens_per_s_per_device", "mfu", "peak_bytes")
_SCENARIO_COLUMNS = ("devices", "global_batch_size", "seq_len", "precision", "framework")
_LISTED_COLUMNS = tuple(field.name for field in fields(ListedPlan) if field.name not in ("axes", "figures"))
_WORDS = frozenset({"cp_comm_type", "schedule", "recompute", "offload"})
_WALK = 2_000
"""Plans that are looked at along the index of the sort column before the other way is taken."""


def list_plans(
    connection: Connection, filter: PlanFilter, sort: str, after: tuple[Any, str] | None, limit: int
) -> Page:
    """A page of ``ListedPlan``; see ``Plans.list``."""
    column = sort.removeprefix("-")
    if column not in PLAN_SORTS:
        raise UnknownName("sort", sort, [*PLAN_SORTS, *(f"-{name}" for name in PLAN_SORTS)])
    falling = sort.startswith("-")
    place = _place(column, after)
    rows = _find(connection, filter, column, falling, place, limit + 1)
    shown = rows[:limit]
    return Page(
        items=[_listed(row) for row in shown],
        next=_next(shown[-1], column) if len(rows) > limit and shown else None,
    )


def _find(
    connection: Connection,
    filter: PlanFilter,
    column: str,
    falling: bool,
    place: tuple[Any, str] | None,
    count: int,
) -> list[Row[Any]]:
    plans = table_of(PlanRow)
    conditions = _conditions(filter, plans)
    beyond = _beyond(plans, column, falling, place)
    if not conditions:
        first = _ordered(select(plans).where(*beyond), plans, column, falling).limit(count).subquery("first")
        return _rows(connection, first, column, falling)
    if filter.scenario_id is None and filter.search_id is None:
        walked = _ordered(select(plans).where(*beyond), plans, column, falling).limit(max(_WALK, count)).subquery()
        passing = _ordered(select(walked).where(*_conditions(filter, walked)), walked, column, falling)
        rows = _rows(connection, passing.limit(count).subquery("passing"), column, falling)
        if len(rows) == count:
            return rows
    # The offset keeps the sort column's index out of it: a database may not see through one.
    gathered = select(plans.c.id, plans.c[column]).where(*conditions).offset(0).subquery("gathered")
    behind = select(gathered.c.id).where(*_beyond(gathered, column, falling, place))
    first_ids = _ordered(behind, gathered, column, falling).limit(count)
    picked = select(plans).where(plans.c.id.in_(first_ids)).subquery("picked")
    return _rows(connection, picked, column, falling)


def _ordered(query: Select[Any], plans: FromClause, column: str, falling: bool) -> Select[Any]:
    keys = (plans.c[column], plans.c.id)
    return query.order_by(*(key.desc() for key in keys)) if falling else query.order_by(*keys)


def _beyond(
    plans: FromClause, column: str, falling: bool, place: tuple[Any, str] | None
) -> tuple[ColumnElement[bool], ...]:
    if place is None:
        return ()
    columns = (plans.c[column], plans.c.id)
    key, here = tuple_(*columns), tuple_(*place, types=[each.type for each in columns])
    return ((key < here) if falling else (key > here),)


def _rows(connection: Connection, plans: FromClause, column: str, falling: bool) -> list[Row[Any]]:
    """The few plans of a page with what their scenarios say of them."""
    query = (
        select(
            *plans.c,
            ModelRow.name.label("model"),
            ClusterRow.name.label("cluster"),
            ClusterRow.accelerator,
            *(getattr(ScenarioRow, name) for name in _SCENARIO_COLUMNS),
        )
        .join_from(plans, ScenarioRow, ScenarioRow.id == plans.c.scenario_id)
        .join(ModelRow, ModelRow.id == ScenarioRow.model_id)
        .join(ClusterRow, ClusterRow.id == ScenarioRow.cluster_id)
    )
    return list(connection.execute(_ordered(query, plans, column, falling)))


def _conditions(filter: PlanFilter, plans: FromClause) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    for name in ("scenario_id", "calibration_id"):
        if (value := getattr(filter, name)) is not None:
            found.append(plans.c[name] == value)
    if filter.search_id is not None:
        answered = select(SearchPlanRow.plan_id).where(SearchPlanRow.search_id == filter.search_id)
        found.append(plans.c.id.in_(answered))
    if filter.max_peak_bytes is not None:
        found.append(plans.c.peak_bytes <= filter.max_peak_bytes)
    for axis, value in filter.axes.items():
        found.append(plans.c[_known_axis(axis, value)] == value)
    scenarios = _matching_scenarios(filter)
    if scenarios is not None:
        found.append(plans.c.scenario_id.in_(scenarios))
    return found


def _matching_scenarios(filter: PlanFilter) -> Select[Any] | None:
    """Ids of the scenarios that the filter lets through; None when it lets all through."""
    own = {name: getattr(filter, name) for name in ("framework", "precision", "devices")}
    of_cluster = {ClusterRow.name: filter.cluster, ClusterRow.accelerator: filter.accelerator}
    matching = select(ScenarioRow.id).where(
        *(getattr(ScenarioRow, name) == value for name, value in own.items() if value is not None)
    )
    if filter.model is not None:
        matching = matching.join(ModelRow, ModelRow.id == ScenarioRow.model_id).where(ModelRow.name == filter.model)
    if any(value is not None for value in of_cluster.values()):
        matching = matching.join(ClusterRow, ClusterRow.id == ScenarioRow.cluster_id).where(
            *(column == value for column, value in of_cluster.items() if value is not None)
        )
    return None if matching.whereclause is None else matching


def _known_axis(axis: str, value: int | str) -> str:
    if axis not in AXES:
        raise UnknownName("axis", axis, AXES)
    if isinstance(value, str) != (axis in _WORDS):
        raise InvalidInput(axis, value, "a word is expected" if axis in _WORDS else "a whole number is expected")
    return axis


def _place(column: str, after: tuple[Any, str] | None) -> tuple[Any, str] | None:
    """Where a page begins, from what its reader handed back."""
    if after is None:
        return None
    value, identity = after
    if column == "created_at":
        return moment_of(value), identity_of(identity)
    number = number_of(value)
    return (int(number) if column == "peak_bytes" else float(number)), identity_of(identity)


def _next(last: Row[Any], column: str) -> tuple[Any, str]:
    value = last._mapping[column]
    return (value.isoformat() if column == "created_at" else value), last.id


def _listed(row: Row[Any]) -> ListedPlan:
    found = row._mapping
    plain = {name: found[name] for name in _LISTED_COLUMNS}
    axes = {name: found[name] for name in AXES}
    # A plan's own batch, which may be another than the scenario's where that had a tolerance.
    plain["global_batch_size"] = axes["micro_batch_size"] * axes["num_microbatches"] * axes["dp"]
    return ListedPlan(**plain, axes=axes, figures={name: found[name] for name in FIGURES})
