"""Series of real runs around the plans of a scenario."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from costmodel.errors import InvalidInput
from db.column_types import is_storable
from db.records import Page, Study
from db.repositories.statements import insert_unless_there, page_by_creation, record_of, table_of, values_of
from db.tables import StudyRow


class Studies:
    """Studies; names are unique."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, record: Study) -> None:
        """Keep a study.

        Raises:
            InvalidInput: another study has that name.
        """
        if not insert_unless_there(self._connection, StudyRow, values_of(record), ("name",)):
            raise InvalidInput("name", record.name, "a name that no other study has is expected")

    def get(self, id: str) -> Study | None:
        """The study of that id."""
        if not is_storable(id):
            return None
        row = self._connection.execute(select(StudyRow.__table__).where(StudyRow.id == id)).one_or_none()
        return None if row is None else record_of(Study, row)

    def list(self, after: tuple[Any, str] | None = None, limit: int = 50) -> Page:
        """A page of studies, newest first."""
        table = table_of(StudyRow)
        return page_by_creation(
            self._connection,
            select(table),
            table.c.created_at,
            table.c.id,
            after,
            limit,
            lambda row: record_of(Study, row),
        )
