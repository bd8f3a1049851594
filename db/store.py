"""The store: opens a database and hands out transactions on it.

    with store.writing() as repos:
        repos.scenarios.put(scenario, now)

A transaction is committed at the end of its block, or undone as a whole if the block raises.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from sqlalchemy import text

from db.boundary import told
from db.engine import POOL_WAIT_SECONDS, engine_of, for_reading
from db.errors import StoreLocked, StoreUnavailable
from db.file_locks import try_to_hold
from db.repositories import Repositories
from db.revisions import check_at_head, revision_of
from db.sqlite_file import prepare, serving_lock
from db.urls import Backend, DatabaseUrl, database_url


class Store:
    """A database that is at this planner's revision. May be used by many threads at once.

    Attributes:
        backend: ``sqlite`` or ``postgresql``.
        shown_url: which database, without its password.
    """

    def __init__(self, database: DatabaseUrl) -> None:
        self.database = database
        self.backend: Backend = database.backend
        self.shown_url = database.shown
        self._engine = engine_of(database)
        self._reading = for_reading(self._engine)
        # SQLite has one writer at a time; who waits here is woken at once, who waits in SQLite polls.
        self._turn = threading.Lock() if database.backend == "sqlite" else None
        self._serving: int | None = None

    @classmethod
    def open(cls, url: str | None = None) -> Self:
        """Open a database. An SQLite file is created and upgraded first; PostgreSQL has to be at this revision.

        Args:
            url: by default ``PLANNER_DATABASE_URL``, else a file in the user's data folder.

        Raises:
            InvalidInput: no usable URL.
            StoreUnavailable: it can't be reached, created or read.
            SchemaBehind: PostgreSQL has to be upgraded (``planner db upgrade``).
            SchemaAhead: a newer planner wrote it.
            StoreServed: an SQLite file has to be upgraded, and a server of an older planner runs on it.
        """
        database = database_url(url)
        if database.backend == "sqlite":
            prepare(database)
        store = cls(database)
        try:
            check_at_head(store.revision(), store.shown_url)
        except BaseException:
            store.close()
            raise
        return store

    @contextmanager
    def reading(self) -> Iterator[Repositories]:
        """One transaction that sees one state of the database and changes nothing."""
        with told(self.database), self._reading.begin() as connection:
            yield Repositories(connection)

    @contextmanager
    def writing(self) -> Iterator[Repositories]:
        """One transaction that may change something.

        Raises:
            StoreUnavailable: the database can't be written; nothing of the block is kept.
        """
        with told(self.database), self._writers_turn(), self._engine.begin() as connection:
            yield Repositories(connection)

    def ping(self) -> None:
        """Raise StoreUnavailable unless the database answers."""
        with told(self.database), self._reading.begin() as connection:
            connection.execute(text("SELECT 1"))

    def revision(self) -> str | None:
        """The revision of the schema."""
        with told(self.database), self._reading.begin() as connection:
            return revision_of(connection)

    def lock_for_serving(self) -> None:
        """Claim the database for this server or worker, until it is closed or the process ends.

        Raises:
            StoreLocked: another one runs on the same SQLite file. PostgreSQL takes any number.
        """
        path = self.database.path
        if path is None or self._serving is not None:
            return
        try:
            self._serving = try_to_hold(serving_lock(path))
        except OSError as error:
            raise StoreUnavailable(self.shown_url, f"its lock can't be taken: {error.strerror}") from None
        if self._serving is None:
            raise StoreLocked(self.shown_url)

    @property
    def serves_alone(self) -> bool:
        """Whether nobody else works on the searches of this database: it is an SQLite file, and claimed for serving."""
        return self._serving is not None

    def close(self) -> None:
        """Give back connections and locks."""
        self._engine.dispose()
        if self._serving is not None:
            os.close(self._serving)
            self._serving = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _writers_turn(self) -> Iterator[None]:
        if self._turn is None:
            yield
            return
        if not self._turn.acquire(timeout=POOL_WAIT_SECONDS):
            raise StoreUnavailable(self.shown_url, "another write takes too long")
        try:
            yield
        finally:
            self._turn.release()
