"""Whether rows still are what was stored: content against its fingerprint, columns against content."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection, Row, select

from costmodel.calibration.calibration import Calibration, load_calibration
from costmodel.fingerprint import calibration_id, cluster_id, model_id, plan_document_id, scenario_id
from costmodel.scenario import Scenario
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import Plan
from db import records
from db.findings import ROWS_AT_ONCE, Finding, stream
from db.repositories import Repositories
from db.repositories.plan_lists import AXES
from db.tables import (
    Base,
    CalibrationRow,
    ClusterRow,
    ModelRow,
    PlanDocumentRow,
    PlanRow,
    PredictionRow,
    ScenarioRow,
)

Json = dict[str, Any]


def changes(connection: Connection) -> Iterator[Finding]:
    """All rows whose content is not what their id and their columns say."""
    for table in _ENTRIES:
        yield from _changed_entries(connection, table)
    yield from _changed_scenarios(connection)
    for plan in Repositories(connection).plans.everything(ROWS_AT_ONCE):
        yield from _changed_plan(plan)
    yield from _narrow_plans(connection)


def changed(connection: Connection, table: str, ids: Collection[str]) -> Iterator[Finding]:
    """Rows of models, clusters, calibrations, scenarios or plans whose content is not what id and columns say."""
    if table == "scenarios":
        yield from _changed_scenarios(connection, ids)
    elif table == "plans":
        for plan in Repositories(connection).plans.get_many(list(ids)):
            yield from _changed_plan(plan)
        yield from _narrow_plans(connection, ids)
    else:
        yield from _changed_entries(connection, table, ids)


def _changed_entries(connection: Connection, table: str, ids: Collection[str] | None = None) -> Iterator[Finding]:
    row, kind, identity, columns = _ENTRIES[table]
    for found in _rows(connection, row, ids):
        yield from _changed(table, found, kind, found.spec, identity, columns)


def _changed_scenarios(connection: Connection, ids: Collection[str] | None = None) -> Iterator[Finding]:
    @cache
    def spec_of(row: type[Base], id: str) -> Any:
        return connection.execute(select(row.__table__.c.spec).where(row.__table__.c.id == id)).scalar_one_or_none()

    # Which calibration a scenario is priced under is no part of it.
    calibration = load_calibration().model_dump(mode="json")
    for found in _rows(connection, ScenarioRow, ids):
        parts = {"model": spec_of(ModelRow, found.model_id), "cluster": spec_of(ClusterRow, found.cluster_id)}
        whole = {**found.spec, **parts, "calibration": calibration} if isinstance(found.spec, dict) else found.spec
        yield from _changed("scenarios", found, Scenario, whole, scenario_id, _scenario_columns)


def _changed_plan(plan: records.Plan) -> Iterator[Finding]:
    try:
        Plan.model_validate(plan.plan)
    except ValidationError as error:
        yield Finding("plans", plan.id, f"its content is no plan: {_first(error)}", by_our_rules=True)
    if plan_document_id(plan.scenario_id, plan.plan, plan.calibration_id, plan.cost_model_version) != plan.id:
        yield Finding("plans", plan.id, "it is not what was stored: its content has another fingerprint")


def _narrow_plans(connection: Connection, ids: Collection[str] | None = None) -> Iterator[Finding]:
    """Plans whose columns, which lists filter by, are not what their content says, or that are not there as a whole."""
    query = (
        select(PlanRow.__table__, PlanDocumentRow.plan.label("document"), PredictionRow.plan_id)
        .outerjoin(PlanDocumentRow, PlanDocumentRow.plan_id == PlanRow.id)
        .outerjoin(PredictionRow, PredictionRow.plan_id == PlanRow.id)
    )
    for row in stream(connection, query if ids is None else query.where(PlanRow.id.in_(ids))):
        if row.document is None or row.plan_id is None:
            yield Finding("plans", row.id, f"its {'prediction' if row.document else 'content'} is gone")
        elif isinstance(row.document, dict):
            for axis in AXES:
                column, said = getattr(row, axis), row.document.get(axis)
                if column != said:
                    yield Finding("plans", row.id, f"{axis} is {column!r}, its content says {said!r}")


def _changed(
    table: str,
    row: Row[Any],
    kind: type[BaseModel],
    content: Any,
    identity: Callable[[Any], str],
    columns: Callable[[Any], Mapping[str, Any]],
) -> Iterator[Finding]:
    try:
        noun = kind.model_validate(content)
    except (ValidationError, TypeError) as error:
        why = _first(error) if isinstance(error, ValidationError) else str(error)
        yield Finding(table, row.id, f"its content can't be read by this planner: {why}", by_our_rules=True)
        return
    # What another planner wrote with other fields had its fingerprint over those.
    if noun.model_dump(mode="json") == content and identity(noun) != row.id:
        yield Finding(
            table, row.id, "its content has another fingerprint by the rules of this planner", by_our_rules=True
        )
    for name, value in columns(noun).items():
        if getattr(row, name) != value:
            yield Finding(table, row.id, f"{name} is {getattr(row, name)!r}, its content says {value!r}")


def _rows(connection: Connection, row: type[Base], ids: Collection[str] | None) -> Iterator[Row[Any]]:
    table = row.__table__
    query = select(table).order_by(table.c.id)
    if ids is not None:
        query = query.where(table.c.id.in_(ids))
    return stream(connection, query)


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, found['loc']))}: {found['msg']}"


def _model_columns(model: ModelSpec) -> Json:
    return {
        "name": model.name,
        "params_total": model.params.total,
        "params_active": model.params.active,
        "num_layers": model.num_layers,
    }


def _cluster_columns(cluster: ClusterSpec) -> Json:
    return {
        "name": cluster.name,
        "accelerator": cluster.accelerator.name,
        "devices_per_node": cluster.devices_per_node,
        "max_devices": cluster.max_devices,
        "price_per_device_hour": cluster.price_per_device_hour,
    }


def _calibration_columns(calibration: Calibration) -> Json:
    return {"name": calibration.name}


def _scenario_columns(scenario: Scenario) -> Json:
    work = scenario.workload
    return {
        "devices": scenario.devices,
        "global_batch_size": work.global_batch_size,
        "seq_len": work.seq_len,
        "precision": work.precision.name,
        "optimizer": work.optimizer.name,
        "framework": scenario.framework.name,
        "framework_version": scenario.framework.version,
        "min_free_bytes": scenario.min_free_bytes,
    }


_ENTRIES: Mapping[str, tuple[type[Base], type[BaseModel], Callable[[Any], str], Callable[[Any], Json]]] = {
    "models": (ModelRow, ModelSpec, model_id, _model_columns),
    "clusters": (ClusterRow, ClusterSpec, cluster_id, _cluster_columns),
    "calibrations": (CalibrationRow, Calibration, calibration_id, _calibration_columns),
}
