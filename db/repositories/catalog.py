"""Models and clusters that something was asked about."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, select

from db.column_types import is_storable
from db.records import Cluster, Model, Page
from db.repositories.statements import page_by_creation, record_of, table_of
from db.tables import Base, ClusterRow, ModelRow

Entry = TypeVar("Entry")


class _Entries(Generic[Entry]):
    """Entries of one kind; they are written with the scenario that names them."""

    def __init__(self, connection: Connection, row: type[Base], kind: type[Entry]) -> None:
        self._connection = connection
        self._table = table_of(row)
        self._kind = kind

    def get(self, id: str) -> Entry | None:
        """The entry of that id."""
        if not is_storable(id):
            return None
        row = self._connection.execute(select(self._table).where(self._table.c.id == id)).one_or_none()
        return None if row is None else record_of(self._kind, row)

    def named(self, name: str) -> list[Entry]:
        """All entries of that name, newest first: a name may have meant different content over time."""
        if not is_storable(name):
            return []
        columns = self._table.c
        query = select(self._table).where(columns.name == name).order_by(columns.created_at.desc(), columns.id.desc())
        return [record_of(self._kind, row) for row in self._connection.execute(query)]

    def list(self, after: tuple[Any, str] | None = None, limit: int = 50) -> Page:
        """All entries, newest first."""
        columns = self._table.c
        return page_by_creation(
            self._connection,
            select(self._table),
            columns.created_at,
            columns.id,
            after,
            limit,
            lambda row: record_of(self._kind, row),
        )


class Models(_Entries[Model]):
    """Models that something was asked about."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, ModelRow, Model)


class Clusters(_Entries[Cluster]):
    """Clusters that something was asked about."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, ClusterRow, Cluster)
