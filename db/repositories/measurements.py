"""What really happened when plans ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select

from costmodel.errors import InvalidInput
from db.column_types import is_storable
from db.records import Measurement, Page
from db.repositories.statements import insert_unless_there, page_by_creation, record_of, table_of, values_of
from db.tables import MeasurementRow, PlanRow, StudyRow


class Measurements:
    """Measurements, each of a stored plan."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, record: Measurement) -> Measurement:
        """Keep a measurement.

        Returns:
            What is stored: of several for one trial of a study, the first.

        Raises:
            InvalidInput: no such plan or study is stored.
        """
        self._check(PlanRow.id, "plan_id", record.plan_id)
        if record.study_id is None or record.trial_number is None:
            self._connection.execute(insert(MeasurementRow).values(**values_of(record)))
            return record
        self._check(StudyRow.id, "study_id", record.study_id)
        trial = ("study_id", "trial_number")
        if insert_unless_there(self._connection, MeasurementRow, values_of(record), trial):
            return record
        first = select(MeasurementRow.__table__).where(
            MeasurementRow.study_id == record.study_id, MeasurementRow.trial_number == record.trial_number
        )
        return record_of(Measurement, self._connection.execute(first).one())

    def get(self, id: str) -> Measurement | None:
        """The measurement of that id."""
        if not is_storable(id):
            return None
        query = select(MeasurementRow.__table__).where(MeasurementRow.id == id)
        row = self._connection.execute(query).one_or_none()
        return None if row is None else record_of(Measurement, row)

    def list(
        self,
        *,
        plan_id: str | None = None,
        scenario_id: str | None = None,
        job_id: str | None = None,
        status: str | None = None,
        after: tuple[Any, str] | None = None,
        limit: int,
    ) -> Page:
        """A page of measurements, newest first."""
        table = table_of(MeasurementRow)
        query = select(table)
        if scenario_id is not None:
            query = query.join(PlanRow, PlanRow.id == table.c.plan_id).where(PlanRow.scenario_id == scenario_id)
        for column, value in ((table.c.plan_id, plan_id), (table.c.job_id, job_id), (table.c.status, status)):
            if value is not None:
                query = query.where(column == value)
        return page_by_creation(
            self._connection,
            query,
            table.c.created_at,
            table.c.id,
            after,
            limit,
            lambda row: record_of(Measurement, row),
        )

    def of_study(self, study_id: str) -> Sequence[Measurement]:
        """What the trials of a study measured, in their order."""
        query = (
            select(MeasurementRow.__table__)
            .where(MeasurementRow.study_id == study_id)
            .order_by(MeasurementRow.trial_number)
        )
        return [record_of(Measurement, row) for row in self._connection.execute(query)]

    def _check(self, column: Any, field: str, id: str) -> None:
        if not is_storable(id) or self._connection.execute(select(column).where(column == id)).one_or_none() is None:
            raise InvalidInput(field, id, "the id of a stored one is expected")
