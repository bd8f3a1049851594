"""What a look into every row finds, and how rows are read for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select

ROWS_AT_ONCE = 500


class Finding(NamedTuple):
    """What is wrong with a row.

    Attributes:
        by_our_rules: another planner may have had other fields, or other rules for what makes an id.
    """

    table: str
    id: str
    what: str
    by_our_rules: bool = False

    def __str__(self) -> str:
        return f"{self.table} {self.id}: {self.what}"


def stream(connection: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
    """Rows of a query, without all of them in memory at once."""
    return iter(connection.execute(query, execution_options={"yield_per": ROWS_AT_ONCE}))
