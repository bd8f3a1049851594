"""The schema: bringing a database to this planner's revision, and looking for what is wrong with one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from db.boundary import told
from db.engine import engine_of, for_reading
from db.errors import StoreUnavailable
from db.records import Plan
from db.repositories import Repositories
from db.revisions import HEAD, VERSION_TABLE, check_known, revision_of
from db.tables import Base
from db.urls import DatabaseUrl

_ADVISORY_LOCK = 0x706C616E6E6572  # "planner"
_ONE_AT_A_TIME = threading.Lock()
"""alembic keeps what it is doing in module globals."""
_MOST_TOLD = 20
_PLANS_AT_ONCE = 500


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


def check(database: DatabaseUrl, plan_id: Callable[[Plan], str] | None = None) -> list[str]:
    """What is wrong with a database, a line each; nothing for a sound one.

    Args:
        plan_id: the id that a stored plan should have, by its content.

    Raises:
        StoreUnavailable: it can't be reached or read.
    """
    if database.path is not None and not database.path.exists():
        return [f"there is no file {database.path} yet (planner db upgrade)"]
    engine = engine_of(database, for_upgrade=True)
    try:
        with told(database), for_reading(engine).connect() as connection:
            revision = revision_of(connection)
            if revision is None:
                return [f"there are no tables yet; this planner needs revision {HEAD} (planner db upgrade)"]
            if revision != HEAD:
                return [f"the schema is at revision {revision}; this planner needs {HEAD} (planner db upgrade)"]
            problems = [*_drift(connection), *_damage(connection)]
            if plan_id is not None and not problems:
                problems += _changed_plans(connection, plan_id)
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


def options() -> dict[str, Any]:
    """How alembic has to look at a database of ours."""
    return {"target_metadata": Base.metadata, "version_table": VERSION_TABLE, "compare_type": True}


def _drift(connection: Connection) -> list[str]:
    """Differences between the tables as they are and as they should be."""
    known = set(Base.metadata.tables)

    # Optuna's tables, or anybody's, may stand beside ours.
    def ours(name: str | None, kind: str, parents: Any) -> bool:
        return (name in known) if kind == "table" else True

    context = MigrationContext.configure(connection, opts={**options(), "include_name": ours})
    changes = compare_metadata(context, Base.metadata)
    return [f"the schema differs from what it should be: {change}" for change in changes]


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


def _changed_plans(connection: Connection, plan_id: Callable[[Plan], str]) -> Iterator[str]:
    told_of = 0
    for plan in Repositories(connection).plans.everything(_PLANS_AT_ONCE):
        if plan_id(plan) != plan.id and told_of < _MOST_TOLD:
            told_of += 1
            yield f"plan {plan.id} is not what was stored: its content has another fingerprint"
