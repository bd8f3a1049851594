"""What can go wrong between a client and a server; never with an API key in the message.

PlannerError
└── ClientError
    ├── BadRequest          a field is unusable; also an InvalidInput (CLI exit 2)
    ├── NotAllowed          no API key, an unknown one, or one that may not do this
    ├── NotThere            there is no such search, plan, model, ...
    ├── ServerUnavailable   not reached, overloaded or stopping, also after retries
    ├── ServerFailed        it answered with an error of its own, or is no planner
    ├── SearchFailed        the search ended without an answer
    ├── SearchCancelled     somebody cancelled the search
    └── StillSearching      the time to wait is over, the search is not
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput, PlannerError
from planner.client.answers import Search

# The body's lists are the command line's repeated options.
_FLAGS = {"pins": "pin", "forbids": "forbid"}


class ClientError(PlannerError):
    """Base of all errors of the client.

    Attributes:
        status: of the response; None without one.
        problem: the problem object (RFC 9457) that the server sent; empty without one.
    """

    def __init__(self, message: str, *, status: int | None = None, problem: Mapping[str, Any] | None = None) -> None:
        self.status = status
        self.problem = dict(problem or {})
        Exception.__init__(self, " ".join(message.split()))

    @property
    def request_id(self) -> str | None:
        """What the server's log calls the request."""
        found = self.problem.get("request_id")
        return None if found is None else str(found)


class BadRequest(ClientError, InvalidInput):
    """A field is unusable; in the words of the server, which are those of the command line.

    Attributes:
        nearest: the names that may be meant, for an unknown name.
        refusals: what a target of an export can't say of a plan.
    """

    _MEMBERS = ("nearest", "refusals")

    def __init__(self, message: str, *, status: int | None = None, problem: Mapping[str, Any] | None = None) -> None:
        ClientError.__init__(self, message, status=status, problem=problem)
        first: Mapping[str, Any] = next(iter(self.problem.get("errors") or ()), {})
        nearest = self.problem.get("nearest")
        field = self.problem.get("field")
        self.field = field_of(str(first.get("pointer", ""))) if not field else _as_flag(str(field))
        self.value = self.problem.get("value")
        self.expected = str(self.problem.get("expected") or first.get("detail") or self)
        self.slug = str(self.problem.get("type", "invalid-input"))
        self.nearest: tuple[str, ...] | None = None if nearest is None else tuple(nearest)
        self.refusals: tuple[dict[str, Any], ...] = tuple(self.problem.get("refusals") or ())

    @property
    def members(self) -> dict[str, Any]:
        return {name: self.problem[name] for name in self._MEMBERS if name in self.problem}


class NotAllowed(ClientError):
    """The API key is missing, unknown, revoked or expired, or has not the scope that this needs."""


class NotThere(ClientError):
    """There is no such thing at this server."""


class ServerUnavailable(ClientError):
    """The server can't be reached, or says that it can't answer now."""


class ServerFailed(ClientError):
    """The server failed on this request, or what answers is no planner."""


class SearchFailed(ClientError):
    """The search ended without an answer.

    Attributes:
        search: as the server has it.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        reason = (search.problem or {}).get("detail", "the server says no more")
        super().__init__(f"search {search.id} failed: {reason}", problem=search.problem)


class SearchCancelled(ClientError):
    """The search was cancelled.

    Attributes:
        search: as the server has it.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        super().__init__(f"search {search.id} was cancelled")


class StillSearching(ClientError):
    """Time is up, and the search goes on.

    Attributes:
        search: as it stood last.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        super().__init__(f"search {search.id} is still {search.state}; ask again for its answer")


def field_of(pointer: str) -> str:
    """``/global_batch_size`` as the flag that a user knows, ``/cluster/tiers/0/kind`` as a path; else as it is."""
    if not pointer.startswith("/"):
        return pointer
    first, *rest = (part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))
    if first in _FLAGS:
        return _FLAGS[first]
    return _as_flag(first + "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in rest))


def _as_flag(field: str) -> str:
    """A field of the body as the command line calls it; one entry of a list keeps its place, ``pins[0]``."""
    first = re.split(r"[.\[]", field, maxsplit=1)[0]
    return _FLAGS.get(field) or first.replace("_", "-") + field[len(first) :]
