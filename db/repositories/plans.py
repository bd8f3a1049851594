"""Plans: immutable, addressed by their fingerprint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, select

from db.column_types import is_storable
from db.records import Json, Page, Plan, PlanFilter, PlanPlace
from db.repositories.plan_lists import AXES, list_plans
from db.repositories.statements import insert_or_ignore
from db.tables import PlanDocumentRow, PlanRow, PredictionRow, SearchPlanRow, SearchRow


class Plans:
    """Plans with their predictions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put(self, plans: Sequence[Plan]) -> None:
        """Keep plans; those that are there already stay as they are."""
        insert_or_ignore(self._connection, PlanRow, [_columns(plan) for plan in plans])
        documents = [{"plan_id": plan.id, "plan": plan.plan} for plan in plans]
        insert_or_ignore(self._connection, PlanDocumentRow, documents)
        insert_or_ignore(self._connection, PredictionRow, [_prediction_columns(plan) for plan in plans])

    def get(self, id: str) -> Plan | None:
        """The plan of that id."""
        if not is_storable(id):
            return None
        row = self._connection.execute(_ONE, {"id": id}).one_or_none()
        return None if row is None else _plan(row)

    def get_many(self, ids: Sequence[str]) -> list[Plan]:
        """Plans in the order of the ids; those that are not there are left out."""
        possible = [id for id in ids if is_storable(id)]
        if not possible:
            return []
        rows = self._connection.execute(_WHOLE.where(PlanRow.id.in_(possible)))
        found = {row.id: _plan(row) for row in rows}
        return [found[id] for id in ids if id in found]

    def of_search(self, search_id: str, *, stages: bool = True) -> list[Plan]:
        """The plans that a search answered with, best first.

        Args:
            stages: whether they say what memory each stage needs; if not, ``memory`` has none.
        """
        if not is_storable(search_id):
            return []
        statement = _OF_SEARCH if stages else _WITHOUT_STAGES
        return [_plan(row) for row in self._connection.execute(statement, {"search_id": search_id})]

    def ids_from(self, beginning: str, most: int) -> list[str]:
        """Ids that begin with some digits, in their order."""
        if not is_storable(beginning):
            return []
        # A range of the key: no database needs an index of its own for it.
        ids = select(PlanRow.id).where(PlanRow.id >= beginning, PlanRow.id < f"{beginning}g").order_by(PlanRow.id)
        return list(self._connection.execute(ids.limit(most)).scalars())

    def places(self, plan_id: str, most: int) -> list[PlanPlace]:
        """Which searches answered with a plan, the newest first, and which plans they ranked around it."""
        if not is_storable(plan_id):
            return []
        found = self._connection.execute(_PLACES, {"plan_id": plan_id, "most": most}).all()
        return [PlanPlace(row.search_id, row.rank, self._around(row.search_id, row.rank)) for row in found]

    def _around(self, search_id: str, rank: int) -> dict[int, str]:
        near = sorted({1, rank - 1, rank, rank + 1})
        rows = self._connection.execute(_AROUND, {"search_id": search_id, "near": near})
        return {row.rank: row.plan_id for row in rows}

    def best_of(self, search_ids: Sequence[str]) -> dict[str, Plan]:
        """The best plan of each search that has one, by the search's id."""
        rows = self._connection.execute(_BEST_OF, {"search_ids": list(search_ids)})
        return {row.search_id: _plan(row) for row in rows}

    def everything(self, at_once: int) -> Iterator[Plan]:
        """Every plan, in the order of their ids."""
        last = ""
        while rows := self._connection.execute(
            _WHOLE.where(PlanRow.id > last).order_by(PlanRow.id).limit(at_once)
        ).all():
            yield from map(_plan, rows)
            last = rows[-1].id

    def list(self, filter: PlanFilter, sort: str, after: tuple[Any, str] | None, limit: int) -> Page:
        """A page of ``ListedPlan``.

        Args:
            sort: one of ``PLAN_SORTS``, with ``-`` in front for the largest first.
            after: ``next`` of the page before.

        Raises:
            InvalidInput: the sort, an axis or the place is none that can be used.
        """
        return list_plans(self._connection, filter, sort, after, limit)


_WHOLE: Select[Any] = (
    select(
        PlanRow.id,
        PlanRow.scenario_id,
        PlanRow.calibration_id,
        PlanRow.cost_model_version,
        PlanRow.step_time_s,
        PlanRow.tokens_per_s_per_device,
        PlanRow.mfu,
        PlanRow.peak_bytes,
        PlanRow.created_at,
        PlanDocumentRow.plan,
        *(column for column in PredictionRow.__table__.columns if column.name != "plan_id"),
    )
    .join(PlanDocumentRow, PlanDocumentRow.plan_id == PlanRow.id)
    .join(PredictionRow, PredictionRow.plan_id == PlanRow.id)
)
# What every request asks is built once: SQLAlchemy takes longer to build a statement than SQLite to run it.
_ONE = _WHOLE.where(PlanRow.id == bindparam("id"))
_OF_SEARCH = (
    _WHOLE.join(SearchPlanRow, SearchPlanRow.plan_id == PlanRow.id)
    .where(SearchPlanRow.search_id == bindparam("search_id"))
    .order_by(SearchPlanRow.rank)
)
_WITHOUT_STAGES = _OF_SEARCH.with_only_columns(
    *(column for column in _OF_SEARCH.selected_columns if column.name != "memory_stages")
)
_BEST_OF = (
    _WHOLE.add_columns(SearchPlanRow.search_id)
    .join(SearchPlanRow, SearchPlanRow.plan_id == PlanRow.id)
    .where(SearchPlanRow.search_id.in_(bindparam("search_ids", expanding=True)), SearchPlanRow.rank == 1)
)
_PLACES = (
    select(SearchPlanRow.search_id, SearchPlanRow.rank)
    .join(SearchRow, SearchRow.id == SearchPlanRow.search_id)
    .where(SearchPlanRow.plan_id == bindparam("plan_id"))
    .order_by(SearchRow.created_at.desc(), SearchRow.id)
    .limit(bindparam("most"))
)
_AROUND = (
    select(SearchPlanRow.rank, SearchPlanRow.plan_id)
    .where(SearchPlanRow.search_id == bindparam("search_id"), SearchPlanRow.rank.in_(bindparam("near", expanding=True)))
    .order_by(SearchPlanRow.rank)
)
# Fields of a prediction that tables have columns for; the others lie together in one.
_IN_COLUMNS = frozenset(
    {"step_time_s", "step_time_interval_s", "tokens_per_s_per_device", "mfu", "hfu", "time", "memory", "provenance"}
)


_MEMORY_IN_COLUMNS = frozenset({"peak_bytes", "usable_bytes", "stages"})


def _columns(plan: Plan) -> Json:
    prediction = plan.prediction
    return {
        "id": plan.id,
        "scenario_id": plan.scenario_id,
        "calibration_id": plan.calibration_id,
        "cost_model_version": plan.cost_model_version,
        **{axis: plan.plan[axis] for axis in AXES},
        "step_time_s": prediction["step_time_s"],
        "tokens_per_s_per_device": prediction["tokens_per_s_per_device"],
        "mfu": prediction["mfu"],
        "peak_bytes": prediction["memory"]["peak_bytes"],
        "created_at": plan.created_at,
    }


def _prediction_columns(plan: Plan) -> Json:
    prediction = plan.prediction
    low, high = prediction["step_time_interval_s"]
    columns = {
        "plan_id": plan.id,
        "step_time_low_s": low,
        "step_time_high_s": high,
        "hfu": prediction["hfu"],
        "usable_bytes": prediction["memory"]["usable_bytes"],
        "provenance": prediction["provenance"],
        "time": prediction["time"],
        "memory_stages": prediction["memory"]["stages"],
        "details": _details(prediction) or None,
    }
    # What has no column would be lost without a word.
    figures = {name: prediction[name] for name in ("step_time_s", "tokens_per_s_per_device", "mfu")}
    if _prediction({**figures, **columns, "peak_bytes": prediction["memory"]["peak_bytes"]}) != prediction:
        raise ValueError(f"the tables have no place for some of the prediction's fields: {sorted(prediction)}")
    return columns


def _details(prediction: Json) -> Json:
    """What of a prediction has no column."""
    found = {name: value for name, value in prediction.items() if name not in _IN_COLUMNS}
    memory = {name: value for name, value in prediction["memory"].items() if name not in _MEMORY_IN_COLUMNS}
    return {**found, "memory": memory} if memory else found


def _plan(row: Row[Any]) -> Plan:
    found = dict(row._mapping)
    return Plan(
        id=row.id,
        scenario_id=row.scenario_id,
        calibration_id=row.calibration_id,
        cost_model_version=row.cost_model_version,
        plan=row.plan,
        prediction=_prediction(found),
        created_at=row.created_at,
    )


def _prediction(found: Json) -> Json:
    """The prediction as ``suggest --json`` prints it, with its keys in that order."""
    details = dict(found["details"] or {})
    of_memory = details.pop("memory", {})
    return {
        "step_time_s": found["step_time_s"],
        "step_time_interval_s": [found["step_time_low_s"], found["step_time_high_s"]],
        "tokens_per_s_per_device": found["tokens_per_s_per_device"],
        "mfu": found["mfu"],
        "hfu": found["hfu"],
        **details,
        "time": found["time"],
        "memory": {
            "peak_bytes": found["peak_bytes"],
            "usable_bytes": found["usable_bytes"],
            **of_memory,
            **({"stages": found["memory_stages"]} if "memory_stages" in found else {}),
        },
        "provenance": found["provenance"],
    }
