"""What can go wrong with the store, beside bad input: one line each, and never a password."""

from __future__ import annotations

from costmodel.errors import InvalidInput, PlannerError


class StoreUnavailable(PlannerError):
    """The database can't be reached, opened, read or written.

    Attributes:
        shown_url: which database, without its password.
        reason: one line.
    """

    def __init__(self, shown_url: str, reason: str) -> None:
        self.shown_url = shown_url
        self.reason = reason
        super().__init__(f"the database {shown_url} can't be used: {reason}")


class SchemaBehind(PlannerError):
    """The database is older than this planner, and upgrading it is for its owner to decide."""

    def __init__(self, shown_url: str, revision: str | None, head: str) -> None:
        self.revision = revision
        found = "has no tables yet" if revision is None else f"is at revision {revision}"
        super().__init__(f"the database {shown_url} {found}, this planner needs {head}: run planner db upgrade")


class SchemaAhead(PlannerError):
    """The database was written by a newer planner."""

    def __init__(self, shown_url: str, revision: str, head: str) -> None:
        self.revision = revision
        super().__init__(
            f"the database {shown_url} is at revision {revision}, which this planner (up to {head}) does not know: "
            "it was written by a newer planner; upgrade this one"
        )


class StoreLocked(PlannerError):
    """Another process serves from this SQLite file."""

    def __init__(self, shown_url: str) -> None:
        super().__init__(
            f"another server or worker already runs on {shown_url}: several of them need PostgreSQL "
            "(PLANNER_DATABASE_URL=postgresql://...)"
        )


class StoreServed(PlannerError):
    """An SQLite file has to be upgraded, and a server of an older planner runs on it."""

    def __init__(self, shown_url: str, revision: str, head: str) -> None:
        super().__init__(
            f"the database {shown_url} is at revision {revision}, this planner needs {head}, and a server of an older "
            "planner runs on it: stop the server first"
        )


class Unstorable(InvalidInput):
    """A value that no database holds unchanged, such as text with a NUL character."""
