"""The schema: bringing a database to this planner's revision, and looking for what is wrong with one."""

from __future__ import annotations

import threading

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect, text

from db.boundary import first_line, told
from db.contents import changes
from db.drift import differences
from db.engine import engine_of, for_reading
from db.errors import StoreUnavailable
from db.figures import contradictions
from db.revisions import HEAD, REVISIONS, check_known, revision_of
from db.urls import DatabaseUrl

_ADVISORY_LOCK = 0x706C616E6E6572  # "planner"
_ONE_AT_A_TIME = threading.Lock()
"""alembic keeps what it is doing in module globals."""
_MOST_TOLD = 20


def upgrade(database: DatabaseUrl, revision: str = HEAD) -> tuple[str | None, str]:
    """Bring a database to a revision, in one transaction. Two upgrades at once are fine: one does it.

    Returns:
        The revisions before and after.

    Raises:
        StoreUnavailable: it can't be reached or changed; it is as it was before.
        SchemaAhead: a newer planner wrote it.
    """
    engine = engine_of(database, for_upgrade=True)
    try:
        with _ONE_AT_A_TIME, told(database), engine.begin() as connection:
            if database.backend == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
            before = revision_of(connection)
            check_known(before, database.shown)
            if before is None or before < revision:
                command.upgrade(config_for(connection), revision)
                _check_references(connection, database)
            return before, max(before or "", revision)
    finally:
        engine.dispose()


def check(database: DatabaseUrl, *, contents: bool = False) -> list[str]:
    """What is wrong with a database, a line each; nothing for a sound one.

    Args:
        contents: look into every row as well if the schema is as it should be: ``db.contents`` and ``db.figures``.

    Raises:
        StoreUnavailable: it can't be reached or read.
    """
    if database.path is not None and not database.path.exists():
        return [f"there is no file {database.path} yet (planner db upgrade)"]
    engine = engine_of(database, for_upgrade=True)
    try:
        with told(database), for_reading(engine).connect() as connection:
            standing = _standing(connection, database)
            if standing is not None:
                return [standing]
            problems = [*differences(connection), *_damage(connection)]
            if contents and not problems:
                problems += _wrong_rows(connection)
            return problems
    finally:
        engine.dispose()


def config_for(connection: Connection) -> Config:
    """What alembic has to know; there is no alembic.ini."""
    config = Config()
    config.set_main_option("file_template", "r%%(rev)s_%%(slug)s")
    config.set_main_option("script_location", "db:migrations")
    config.attributes["connection"] = connection
    return config


def _standing(connection: Connection, database: DatabaseUrl) -> str | None:
    """Why there is nothing to look into; None for tables of this planner's revision."""
    revision = revision_of(connection)
    if revision is None and database.backend == "sqlite" and inspect(connection).get_table_names():
        return f"{database.path} holds the tables of another program"
    if revision is None:
        return f"there are no tables yet; this planner needs revision {HEAD} (planner db upgrade)"
    if revision not in REVISIONS:
        return f"the schema is at revision {revision}: a newer planner wrote it, this one knows up to {HEAD}"
    if revision != HEAD:
        return f"the schema is at revision {revision}; this planner needs {HEAD} (planner db upgrade)"
    return None


def _damage(connection: Connection) -> list[str]:
    """What SQLite itself finds wrong with its file."""
    if connection.dialect.name != "sqlite":
        return []
    found = [str(row[0]) for row in connection.execute(text(f"PRAGMA integrity_check({_MOST_TOLD})"))]
    problems = [f"the file is damaged: {line}" for line in found if line != "ok"]
    lost = [f"a row of {table} points at a row of {parent} that is gone" for table, parent in _orphans(connection)]
    return problems + lost


def _orphans(connection: Connection) -> list[tuple[str, str]]:
    rows = connection.execute(text("PRAGMA foreign_key_check")).fetchmany(_MOST_TOLD)
    return [(str(row[0]), str(row[2])) for row in rows]


def _check_references(connection: Connection, database: DatabaseUrl) -> None:
    if connection.dialect.name == "sqlite" and (orphans := _orphans(connection)):
        table, parent = orphans[0]
        raise StoreUnavailable(database.shown, f"a row of {table} points at a row of {parent} that is gone")


def _wrong_rows(connection: Connection) -> list[str]:
    """The first of them, and how many more there are."""
    try:
        found = [*changes(connection), *contradictions(connection)]
    except (TypeError, ValueError) as error:
        # SQLite keeps any text in any column: a document that is none, a word instead of a number.
        return [f"a row can't be read: {first_line(str(error))}"]
    more = len(found) - _MOST_TOLD
    return [*map(str, found[:_MOST_TOLD])] + ([f"{more} more findings of this kind"] if more > 0 else [])
