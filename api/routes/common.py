"""What routes share: parameters, the problems that they may answer with, searches by id, and moments."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Request

from api.problems import MEDIA_TYPE, ProblemRaised, not_found, unusable
from api.state import State, state_of
from db import records

Served = Annotated[State, Depends(state_of)]
SearchId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="The id of a search.")]
PlanId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="The id of a plan: its fingerprint.")]
StudyId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="The id of a study.")]
Named = Annotated[str, Path(max_length=200, pattern=r"^[^\x00]+$", description="A name that the list has.")]

LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        description="That of the last event that was seen; what is none of ours counts as none.",
        examples=["7"],
    ),
]

LOOK_AGAIN_S = 1.0
"""How often a search or a study is looked at that another process may be working on."""

# The plans of a comparison.
_MANY = frozenset({"plan"})
_PROBLEM: dict[str, Any] = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_REASONS = {
    304: "The client has this very body already: `If-None-Match` named its `ETag`.",
    400: "The body is no JSON.",
    401: "An API key is needed.",
    403: "The API key does not allow this.",
    404: "There is no such thing.",
    409: "The first request with this Idempotency-Key is in progress, or the state forbids it.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "Not a name of this server.",
    422: "A field is unusable; `errors` says which.",
    503: "The store can't be reached, or too much waits.",
}


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Documentation of the problems that a route may answer with; some are common to all."""
    found: dict[int | str, dict[str, Any]] = {}
    for code in sorted({401, 403, 421, 422, 503, *codes}):
        found[code] = {"description": _REASONS[code], **({} if code == 304 else _PROBLEM)}
    return found


def given_once(request: Request) -> None:
    """Refuse a parameter that is given twice where one is taken: whichever we took, the other would be ignored."""
    names = [name for name, _ in request.query_params.multi_items() if name not in _MANY]
    for name in names:
        if names.count(name) > 1:
            raise unusable(name, "it is given more than once")


def none_unknown(request: Request) -> None:
    """Refuse parameters on routes that take none; the others' own models do so."""
    if not request.scope["route"].dependant.query_params:
        errors = [{"pointer": name, "detail": "there is no such parameter"} for name in request.query_params]
        if errors:
            raise ProblemRaised(422, f"{errors[0]['pointer']}: {errors[0]['detail']}", errors=errors[:50])


def look_up(state: State, search_id: str) -> records.Search:
    """A search as it stands.

    Raises:
        ProblemRaised: there is no such search.
    """
    with state.store.reading() as repos:
        found = repos.searches.get(search_id)
    if found is None:
        raise not_found("search", search_id)
    return found


def now() -> datetime:
    """This moment, with its time zone."""
    return datetime.now(UTC)
