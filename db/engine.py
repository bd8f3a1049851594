"""Engines: how SQLite and PostgreSQL are opened so that both keep what they were told.

SQLite: a write-ahead log, so that readers never wait; ``synchronous=FULL``, so that a commit survives a power cut;
transactions that we begin ourselves, since the driver's own rules begin them late and never around DDL.
PostgreSQL: limits on connecting, on statements and on idle transactions, so that nothing hangs for ever.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import NullPool

from db.column_types import to_json
from db.errors import StoreUnavailable
from db.urls import DatabaseUrl

_OLDEST_SQLITE = (3, 35, 0)  # the first with RETURNING
_BUSY_SECONDS = 10
# Of each connection, all of which may be in use: a quarter of a GiB in all. What is not in it is in the system's cache.
_SQLITE_POOL = {"pool_size": 8, "max_overflow": 8}
_CACHE_KIB = 16 * 1024
_WRITES = "planner_writes"
_POSTGRESQL_OPTIONS = {
    "application_name": "parallelism-planner",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
    # Our queries take milliseconds: starting helpers for one, or compiling it, takes longer than it does.
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}
_POSTGRESQL_POOL = {"pool_size": 8, "max_overflow": 24}
POOL_WAIT_SECONDS = 10


def engine_of(database: DatabaseUrl, *, for_upgrade: bool = False) -> Engine:
    """An engine; nothing is connected yet.

    Args:
        for_upgrade: connections for a change of the schema: SQLite without foreign keys, because dropping the old copy
            of a rebuilt table would delete the rows that point at it; PostgreSQL without a limit on statements.

    Raises:
        StoreUnavailable: the driver is not installed, or SQLite is too old.
    """
    return _sqlite(database, for_upgrade) if database.backend == "sqlite" else _postgresql(database, for_upgrade)


def for_reading(engine: Engine) -> Engine:
    """The same engine with transactions that read one snapshot and can't write."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{_WRITES: False})
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _pool(sizes: dict[str, int], for_upgrade: bool) -> dict[str, Any]:
    return {"poolclass": NullPool} if for_upgrade else {**sizes, "pool_timeout": POOL_WAIT_SECONDS}


def _sqlite(database: DatabaseUrl, for_upgrade: bool) -> Engine:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        needed = ".".join(map(str, _OLDEST_SQLITE))
        raise StoreUnavailable(database.shown, f"SQLite {sqlite3.sqlite_version} is too old, {needed} is needed")
    engine = create_engine(
        database.url,
        connect_args={"timeout": _BUSY_SECONDS, "isolation_level": None},
        json_serializer=to_json,
        **_pool(_SQLITE_POOL, for_upgrade),
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA foreign_keys = {'OFF' if for_upgrade else 'ON'}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute("PRAGMA temp_store = MEMORY")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, True)
        connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
        # A transaction that began by reading can't always become a writer; one that will write says so at once.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql(database: DatabaseUrl, for_upgrade: bool) -> Engine:
    options = {**_POSTGRESQL_OPTIONS, **({"statement_timeout": "0"} if for_upgrade else {})}
    # The user's own options come last: they win.
    given = database.url.query.get("options", "")
    given = " ".join(given) if isinstance(given, tuple) else given
    switches = " ".join(f"-c {name}={value}" for name, value in options.items())
    timeout = database.url.query.get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT") or "5"
    url = database.url.update_query_dict({"options": f"{switches} {given}".strip(), "connect_timeout": timeout})
    try:
        pool = _pool(_POSTGRESQL_POOL, for_upgrade)
        return create_engine(url, pool_pre_ping=not for_upgrade, json_serializer=to_json, **pool)
    except ModuleNotFoundError:
        raise StoreUnavailable(
            database.shown, "PostgreSQL needs the extra postgres: pip install 'parallelism-planner[postgres]'"
        ) from None
