"""What a look into every row finds, and how rows are read for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select

ROWS_AT_ONCE = 500


class Finding(NamedTuple):
    """What is wrong with a row.

    Attributes:
        unreadable: this planner can't read its content, which another planner may have written so.
    """

    table: str
    id: str
    what: str
    unreadable: bool = False

    def __str__(self) -> str:
        return f"{self.table} {self.id}: {self.what}"


def stream(connection: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
    """Rows of a query, without all of them in memory at once."""
    return iter(connection.execute(query, execution_options={"yield_per": ROWS_AT_ONCE}))
