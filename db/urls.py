"""Which database: from an argument, the environment or the user's data folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from costmodel.errors import InvalidInput, Missing

Backend = Literal["sqlite", "postgresql"]

VARIABLE = "PLANNER_DATABASE_URL"
_FIELD = "database-url"
_FORMS = "sqlite:///path/to/file.db or postgresql://user@host/database is expected"


@dataclass(frozen=True, kw_only=True)
class DatabaseUrl:
    """A database that the planner can use.

    Attributes:
        shown: for people: no password, no options.
        path: the file of an SQLite database.
    """

    url: URL
    backend: Backend
    shown: str
    path: Path | None


def database_url(given: str | None = None) -> DatabaseUrl:
    """The database to use.

    Args:
        given: a URL; by default that of ``PLANNER_DATABASE_URL``, else a file in the user's data folder.

    Raises:
        InvalidInput: no URL of SQLite or PostgreSQL, or a path that depends on a folder that can't be told.
    """
    text = given or os.environ.get(VARIABLE) or f"sqlite:///{default_path()}"
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # Whatever stands behind the scheme may hold a password.
        scheme, colon, _ = text.partition(":")
        raise InvalidInput(_FIELD, f"{scheme}:..." if colon else "(not shown)", _FORMS) from None
    if "@" in (url.host or "") or (url.password and "@" in (url.database or "")):
        # What was read as the host, or as the database, is the rest of a password.
        found = f"{url.drivername}:..."
        raise InvalidInput(_FIELD, found, "an @ in the user's name or password must be percent-encoded, as %40")
    backend, _, driver = url.drivername.partition("+")
    if backend == "sqlite" and driver in ("", "pysqlite"):
        return _sqlite(url)
    if backend == "postgresql" and driver in ("", "psycopg"):
        if not url.database:
            raise InvalidInput(_FIELD, _shown(url), f"it names no database; {_FORMS}")
        shown = _shown(url.set(drivername="postgresql"))
        return DatabaseUrl(url=url.set(drivername="postgresql+psycopg"), backend="postgresql", shown=shown, path=None)
    raise InvalidInput(_FIELD, _shown(url), _FORMS)


def default_path() -> Path:
    """The file that is used when nothing else is said.

    Raises:
        Missing: the user has no home directory.
    """
    from platformdirs import user_data_path

    try:
        return user_data_path("parallelism-planner", appauthor=False) / "planner.db"
    except RuntimeError:
        raise Missing(_FIELD, f"this user has no home directory to keep a database in: set {VARIABLE}") from None


def _sqlite(url: URL) -> DatabaseUrl:
    if url.host or url.query:
        raise InvalidInput(_FIELD, _shown(url), "sqlite:///path/to/file.db without options is expected")
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise InvalidInput(_FIELD, _shown(url), "a file is expected, as sqlite:///path/to/file.db")
    try:
        path = Path(url.database).expanduser().absolute()
    except RuntimeError:
        raise InvalidInput(
            _FIELD, _shown(url), "there is no such home directory; an absolute path is expected"
        ) from None
    except OSError:
        raise InvalidInput(_FIELD, _shown(url), "the working directory is gone; an absolute path is expected") from None
    url = URL.create("sqlite", database=str(path))
    return DatabaseUrl(url=url, backend="sqlite", shown=_shown(url), path=path)


def _shown(url: URL) -> str:
    return url.set(query={}).render_as_string(hide_password=True)
