"""How the tables of a database differ from what they should be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import CheckConstraint, Connection, Inspector, Table, inspect

from db.revisions import VERSION_TABLE
from db.tables import Base


def options() -> dict[str, Any]:
    """How alembic has to look at a database of ours."""
    return {"target_metadata": Base.metadata, "version_table": VERSION_TABLE, "compare_type": True}


def differences(connection: Connection) -> list[str]:
    """A line for each."""
    known = set(Base.metadata.tables)

    # Optuna's tables, or anybody's, may stand beside ours.
    def ours(name: str | None, kind: str, parents: Any) -> bool:
        return (name in known) if kind == "table" else True

    context = MigrationContext.configure(connection, opts={**options(), "include_name": ours})
    changes: list[Any] = list(compare_metadata(context, Base.metadata))
    if not changes:
        # What alembic does not compare.
        inspector = inspect(connection)
        for table in Base.metadata.sorted_tables:
            changes += [*_conditions_of_indexes(inspector, table), *_conditions_of_rows(inspector, table)]
    return [f"the schema differs from what it should be: {change}" for change in changes]


def _conditions_of_indexes(inspector: Inspector, table: Table) -> Iterator[str]:
    """Partial indexes that are over other rows."""
    where = f"{inspector.dialect.name}_where"
    found = {str(index["name"]): index.get("dialect_options", {}) for index in inspector.get_indexes(table.name)}
    for index in sorted(table.indexes, key=lambda one: str(one.name)):
        expected, there = index.kwargs.get(where), found.get(str(index.name), {}).get(where)
        if _plain(expected) != _plain(there):
            yield f"index {index.name} is over {_rows(there)}, not {_rows(expected)}"


def _rows(condition: Any) -> str:
    return "all rows" if condition is None else f"rows with {condition}"


def _conditions_of_rows(inspector: Inspector, table: Table) -> Iterator[str]:
    """Checks that are gone, or are others."""
    found = {str(one["name"]): one["sqltext"] for one in inspector.get_check_constraints(table.name)}
    for check in table.constraints:
        if isinstance(check, CheckConstraint) and _plain(there := found.get(str(check.name))) != _plain(check.sqltext):
            yield f"check {check.name} of {table.name} is {there or 'gone'}, not {check.sqltext}"


def _plain(condition: Any) -> str:
    """A condition without what PostgreSQL adds to it when it tells it: types, parentheses, arrays for lists."""
    text = re.sub(r"::\w+(\[\])?|[()\s]", "", "" if condition is None else str(condition))
    return re.sub(r"=ANYARRAY\[(.*?)\]", r"IN\1", text)
