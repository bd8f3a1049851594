"""Scenarios with their models and clusters, and the calibrations that they are priced under."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from db.column_types import is_storable
from db.records import Calibration, Cluster, Model, Scenario
from db.repositories.statements import insert_or_ignore, record_of, values_of
from db.tables import CalibrationRow, ClusterRow, ModelRow, ScenarioRow


class Scenarios:
    """What was asked about."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put(self, record: Scenario, now: datetime) -> None:
        """Keep a scenario with its model and cluster; what is there already stays as it is."""
        self.put_many([record], now)

    def put_many(self, records: Iterable[Scenario], now: datetime) -> None:
        """Keep scenarios with their models and clusters; what is there already stays as it is.

        All that a transaction keeps goes into one call: two that keep the same would wait for each other otherwise.
        """
        models, clusters, scenarios = {}, {}, {}
        for record in records:
            values = {**values_of(record), "created_at": now}
            model, cluster = values.pop("model"), values.pop("cluster")
            models[model.id] = {**values_of(model), "created_at": now}
            clusters[cluster.id] = {**values_of(cluster), "created_at": now}
            scenarios[record.id] = {**values, "model_id": model.id, "cluster_id": cluster.id}
        insert_or_ignore(self._connection, ModelRow, list(models.values()))
        insert_or_ignore(self._connection, ClusterRow, list(clusters.values()))
        insert_or_ignore(self._connection, ScenarioRow, list(scenarios.values()))

    def get(self, id: str) -> Scenario | None:
        """The scenario of that id."""
        return self.get_many([id]).get(id)

    def get_many(self, ids: Collection[str]) -> Mapping[str, Scenario]:
        """Scenarios by their ids; those that are not there are left out."""
        possible = [id for id in ids if is_storable(id)]
        if not possible:
            return {}
        rows = self._connection.execute(_WHOLE.where(ScenarioRow.id.in_(possible)))
        return {row.id: _scenario(row) for row in rows}


class Calibrations:
    """What plans were priced under."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put(self, record: Calibration, now: datetime) -> None:
        """Keep a calibration; one that is there already stays as it is."""
        self.put_many([record], now)

    def put_many(self, records: Iterable[Calibration], now: datetime) -> None:
        """Keep calibrations; those that are there already stay as they are."""
        values = {record.id: {**values_of(record), "created_at": now} for record in records}
        insert_or_ignore(self._connection, CalibrationRow, list(values.values()))

    def get(self, id: str) -> Calibration | None:
        """The calibration of that id."""
        if not is_storable(id):
            return None
        query = select(CalibrationRow.__table__).where(CalibrationRow.id == id)
        row = self._connection.execute(query).one_or_none()
        return None if row is None else record_of(Calibration, row)

    def list(self) -> list[Calibration]:
        """All of them, newest first."""
        query = select(CalibrationRow.__table__).order_by(CalibrationRow.created_at.desc(), CalibrationRow.id.desc())
        return [record_of(Calibration, row) for row in self._connection.execute(query)]


_MODEL, _CLUSTER = "model_", "cluster_"
_WHOLE: Select[Any] = (
    select(
        *ScenarioRow.__table__.columns,
        *(column.label(f"{_MODEL}{column.name}") for column in ModelRow.__table__.columns if column.name != "id"),
        *(column.label(f"{_CLUSTER}{column.name}") for column in ClusterRow.__table__.columns if column.name != "id"),
    )
    .join(ModelRow, ModelRow.id == ScenarioRow.model_id)
    .join(ClusterRow, ClusterRow.id == ScenarioRow.cluster_id)
)


def _scenario(row: Row[Any]) -> Scenario:
    found = dict(row._mapping)
    model = Model(**_part(found, _MODEL))
    cluster = Cluster(**_part(found, _CLUSTER))
    del found["created_at"]
    return Scenario(**found, model=model, cluster=cluster)


def _part(found: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Take the columns of a joined table out of a row; when it was made is not part of a record."""
    part = {name.removeprefix(prefix): found.pop(name) for name in list(found) if name.startswith(prefix)}
    del part["created_at"]
    return part
