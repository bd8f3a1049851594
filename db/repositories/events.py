"""What happened to searches, in order."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, func, insert, select

from db.column_types import is_storable
from db.records import Event, Json
from db.repositories.statements import record_of
from db.tables import SearchEventRow, SearchRow


class Events:
    """Events of searches; a search's own are numbered from 1 without gaps."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, search_id: str, kind: str, data: Json, now: datetime) -> int:
        """Add an event.

        Returns:
            Its number.
        """
        # Whoever adds to the same search waits here, so a reader never sees a number before those below it.
        self._connection.execute(select(SearchRow.id).where(SearchRow.id == search_id).with_for_update())
        last = select(func.coalesce(func.max(SearchEventRow.sequence), 0)).where(SearchEventRow.search_id == search_id)
        sequence = self._connection.execute(last).scalar_one() + 1
        values = {"search_id": search_id, "sequence": sequence, "kind": kind, "data": data, "created_at": now}
        self._connection.execute(insert(SearchEventRow).values(values))
        return sequence

    def after(self, search_id: str, sequence: int = 0) -> list[Event]:
        """The events of a search beyond a number, in order."""
        if not is_storable(search_id):
            return []
        query = (
            select(SearchEventRow.__table__)
            .where(SearchEventRow.search_id == search_id, SearchEventRow.sequence > sequence)
            .order_by(SearchEventRow.sequence)
        )
        return [record_of(Event, row) for row in self._connection.execute(query)]
