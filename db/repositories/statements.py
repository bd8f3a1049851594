"""What the repositories share: writing what may be there already, and lists that go on where the last page ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from math import isfinite
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, FromClause, Row, Select, Table, TextClause, literal, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from costmodel.errors import InvalidInput
from db.column_types import is_storable
from db.records import Page
from db.tables import Base

Values = Mapping[str, Any]
Record = TypeVar("Record")


def table_of(row: type[Base]) -> Table:
    """The table of an ORM class."""
    table: FromClause = row.__table__
    assert isinstance(table, Table)
    return table


def insert_or_ignore(connection: Connection, row: type[Base], values: Sequence[Values]) -> None:
    """Write rows of content; those that are there already stay as they are.

    In the order of their ids: two transactions that write the same rows then wait for each other one way only.
    """
    if not values:
        return
    table = table_of(row)
    keys = [column.name for column in table.primary_key.columns]
    ordered = sorted(values, key=lambda value: [value[key] for key in keys])
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(insert(table).on_conflict_do_nothing(index_elements=keys), ordered)


def insert_unless_there(
    connection: Connection, row: type[Base], values: Values, unique: Sequence[str], where: TextClause | None = None
) -> bool:
    """Write one row unless another one has the same values in those columns.

    Waits for a transaction that is writing such a row, and sees how it ended.

    Args:
        where: the condition of the partial unique index over those columns.

    Returns:
        Whether it was written.
    """
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = make(table_of(row)).values(**values).on_conflict_do_nothing(index_elements=unique, index_where=where)
    return connection.execute(statement.returning(literal(1))).one_or_none() is not None


def values_of(record: Any) -> dict[str, Any]:
    """The fields of a record, without copies of what they hold."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def record_of(kind: type[Record], row: Row[Any]) -> Record:
    """A record whose fields are columns of the row."""
    found = row._mapping
    return kind(**{field.name: found[field.name] for field in fields(kind)})  # type: ignore[arg-type]


def page_by_creation(
    connection: Connection,
    query: Select[Any],
    made: ColumnElement[datetime],
    identity: ColumnElement[str],
    after: tuple[Any, str] | None,
    limit: int,
    record: Callable[[Row[Any]], Any],
) -> Page:
    """A page of a list, newest first.

    Args:
        query: selects ``id`` and ``created_at`` among others.
        after: ``next`` of the page before.
    """
    if after is not None:
        place = tuple_(moment_of(after[0]), identity_of(after[1]), types=[made.type, identity.type])
        query = query.where(tuple_(made, identity) < place)
    rows = connection.execute(query.order_by(made.desc(), identity.desc()).limit(limit + 1)).all()
    shown = rows[:limit]
    more = len(rows) > limit
    return Page(
        items=[record(row) for row in shown],
        next=(shown[-1].created_at.isoformat(), shown[-1].id) if more and shown else None,
    )


def identity_of(value: Any) -> str:
    """An id from a cursor.

    Raises:
        InvalidInput: it is none.
    """
    if not isinstance(value, str) or not is_storable(value):
        raise _no_place(value)
    return value


def moment_of(value: Any) -> datetime:
    """A moment from a cursor.

    Raises:
        InvalidInput: it is none.
    """
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise _no_place(value) from None
    if moment.tzinfo is None:
        raise _no_place(value)
    return moment


def number_of(value: Any) -> int | float:
    """A number from a cursor.

    Raises:
        InvalidInput: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise _no_place(value)
    return value


def _no_place(value: Any) -> InvalidInput:
    return InvalidInput("cursor", value, "hand back the one that the last page gave")
