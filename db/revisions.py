"""The revisions of the schema, oldest first: what ``db/migrations/versions`` holds, without importing alembic."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from db.errors import SchemaAhead, SchemaBehind

REVISIONS = ("0001", "0002", "0003", "0004")
HEAD = REVISIONS[-1]
VERSION_TABLE = "planner_revision"
"""A name of our own: Optuna keeps an ``alembic_version`` wherever its tables are."""


def revision_of(connection: Connection) -> str | None:
    """The revision that a database is at; None before its first upgrade."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()
    return None if found is None else str(found)


def check_known(revision: str | None, shown_url: str) -> None:
    """Raise SchemaAhead for a revision that this planner does not know."""
    if revision is not None and revision not in REVISIONS:
        raise SchemaAhead(shown_url, revision, HEAD)


def check_at_head(revision: str | None, shown_url: str) -> None:
    """Raise SchemaAhead or SchemaBehind unless the database is at the head."""
    check_known(revision, shown_url)
    if revision != HEAD:
        raise SchemaBehind(shown_url, revision, HEAD)
