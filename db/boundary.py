"""Where the errors of a database become ours: what the world did wrong is told in a line, what we did stays a bug."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from db.errors import StoreUnavailable
from db.urls import DatabaseUrl

# Errors about the statement itself; one of them is a mistake of ours, unless the state says otherwise.
_OURS = (exc.IntegrityError, exc.ProgrammingError, exc.DataError, exc.NotSupportedError)
_THEIRS = {
    "42501": None,  # insufficient_privilege
    "42P01": "a table is missing: run planner db upgrade",  # undefined_table
    "42703": "a column is missing: run planner db upgrade",  # undefined_column
    "3F000": None,  # invalid_schema_name
}


@contextmanager
def told(database: DatabaseUrl) -> Iterator[None]:
    """Errors of the database and of the operating system become StoreUnavailable."""
    try:
        yield
    except exc.DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        # Before there is a connection, there is no statement that could be wrong: an option of the URL is.
        if isinstance(error, _OURS) and state not in _THEIRS and error.statement is not None:
            raise
        reason = _THEIRS.get(str(state)) or first_line(str(error.orig))
        raise StoreUnavailable(database.shown, _without_password(reason, database)) from error
    except exc.TimeoutError:
        raise StoreUnavailable(database.shown, "all connections are busy") from None


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")


def _without_password(text: str, database: DatabaseUrl) -> str:
    password = database.url.password
    return text.replace(str(password), "***") if password else text
