"""An SQLite file before it is used: created for its owner alone, in WAL mode, and brought to the head."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from db.errors import StoreServed, StoreUnavailable
from db.file_locks import StillLocked, exclusive, try_to_hold
from db.revisions import HEAD, VERSION_TABLE, check_known
from db.urls import DatabaseUrl

_BUSY_SECONDS = 10
_LOCK_SECONDS = 10


def serving_lock(path: Path) -> Path:
    """What a server holds for as long as it runs on an SQLite file."""
    return path.with_name(f"{path.name}.serve.lock")


def check_there(database: DatabaseUrl) -> None:
    """Raise StoreUnavailable for an SQLite file that is not there: who only reads must not make one."""
    if database.path is not None and not database.path.exists():
        raise StoreUnavailable(database.shown, "there is no such file (planner db upgrade makes one)")


def prepare(database: DatabaseUrl) -> tuple[str | None, str]:
    """Create the file if there is none, and upgrade it. Any number of processes may do so at once.

    Returns:
        The revisions before and after.

    Raises:
        StoreUnavailable: the file can't be created, read or written, or is something else.
        SchemaAhead: a newer planner wrote it.
        StoreServed: it has to be upgraded, and a server of an older planner runs on it.
    """
    path = database.path
    assert path is not None
    try:
        if path.exists() and _state(path, database) == (HEAD, "wal"):
            return HEAD, HEAD
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with exclusive(path.with_name(f"{path.name}.lock"), _LOCK_SECONDS):
            # The files that SQLite puts beside it get the same permissions.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            revision, journal = _state(path, database)
            if journal != "wal":
                _write_ahead(path)
            if revision != HEAD:
                with _nobody_serves(database, revision):
                    from db.schema import upgrade

                    upgrade(database)
            return revision, HEAD
    except StillLocked as error:
        why = f"another process holds {error} since {_LOCK_SECONDS} s: it upgrades the database, or it hangs"
        raise StoreUnavailable(database.shown, why) from None
    except OSError as error:
        raise StoreUnavailable(database.shown, f"{error.strerror}: {error.filename}") from None
    except sqlite3.Error as error:
        raise StoreUnavailable(database.shown, str(error)) from None


@contextmanager
def _nobody_serves(database: DatabaseUrl, revision: str | None) -> Iterator[None]:
    """For a change under which the server of an older planner would no longer find its tables."""
    assert database.path is not None
    if revision is None:
        yield
        return
    # A server of ours opens the database, which brings it here, before it takes this lock.
    lock = try_to_hold(serving_lock(database.path))
    if lock is None:
        raise StoreServed(database.shown, revision, HEAD)
    try:
        yield
    finally:
        os.close(lock)


def _state(path: Path, database: DatabaseUrl) -> tuple[str | None, str]:
    """Revision and journal mode."""
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        if VERSION_TABLE not in tables:
            if tables:
                raise StoreUnavailable(database.shown, "it holds the tables of another program")
            return None, journal
        found = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    revision = None if found is None else str(found[0])
    check_known(revision, database.shown)
    return revision, journal


def _write_ahead(path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
