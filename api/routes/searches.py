"""``/v1/searches``: ask, look, wait, listen, cancel."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from api.auth import Principal, Reader, Writer
from api.conditional import FOR_EVER, body_of, conditional
from api.idempotency import IdempotencyKey, Once
from api.paging import cursor_of, place_of
from api.problems import ProblemRaised, not_found
from api.questions import search_request
from api.routes.common import PageQuery, SearchId, Served, now, problems
from api.schemas.answers import ListedSearch, Search, SearchList
from api.schemas.requests import SearchBody
from api.schemas.text import Name
from api.state import State
from db import records
from planner.service import ask
from planner.stored.answers import stored_answer

router = APIRouter(prefix="/v1/searches", tags=["searches"])

_OVER = frozenset({"done", "failed", "cancelled"})
_LOOK_AGAIN_S = 1.0
_RETRY_AFTER = {"Retry-After": "1"}
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?")
_NEWEST_FIRST = "-created_at"

Prefer = Annotated[
    str | None,
    Header(
        alias="Prefer",
        max_length=200,
        description="`wait=N`: wait N seconds for the answer, 60 at most (RFC 7240).",
        examples=["wait=30"],
    ),
]
LastEventId = Annotated[
    int | None,
    Header(alias="Last-Event-ID", ge=0, le=2**31 - 1, description="The number of the last event that was seen."),
]


class SearchesQuery(PageQuery):
    """Which searches."""

    state: Literal["queued", "running", "done", "failed", "cancelled"] | None = None
    status: Literal["optimal", "feasible", "infeasible", "unknown"] | None = None
    model: Name | None = None
    cluster: Name | None = None


_LINKS = {
    "self": {"operationId": "get_search", "parameters": {"search_id": "$response.body#/id"}},
    "cancel": {"operationId": "cancel_search", "parameters": {"search_id": "$response.body#/id"}},
    "plans": {"operationId": "list_plans", "parameters": {"query.search_id": "$response.body#/id"}},
}


@router.post(
    "",
    status_code=202,
    response_model=Search,
    responses={
        200: {
            "model": Search,
            "description": "Answered: from the store, or while the client waited.",
            "links": _LINKS,
        },
        202: {"description": "On its way: follow `Location`.", "links": _LINKS},
        **problems(400, 409, 413, 415),
    },
    summary="Ask for ranked plans",
)
async def create_search(
    request: Request,
    body: SearchBody,
    state: Served,
    principal: Writer,
    key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> Response:
    """What was answered before is answered at once; otherwise follow ``Location``, or ask with ``Prefer: wait=N``."""
    if key is None:
        return await create(request, body, state, principal, prefer)
    once = Once(state.store, principal, key, "POST /v1/searches", body)
    earlier = await run_in_threadpool(once.earlier)
    if earlier is not None:
        return earlier
    try:
        response = await create(request, body, state, principal, prefer)
    except BaseException:
        await run_in_threadpool(once.forget)
        raise
    return await run_in_threadpool(once.keep, response)


async def create(
    request: Request, body: SearchBody, state: State, principal: Principal, prefer: str | None = None
) -> Response:
    """Ask; for the route above and for the page with the form.

    Raises:
        InvalidInput: a field is unusable.
        Busy: too many searches wait.
    """
    search, stored = await run_in_threadpool(_ask, body, state, principal)
    state.metrics.questions.labels(
        "stored" if search.state == "done" and stored else "joined" if stored else "new"
    ).inc()
    if search.state == "queued":
        state.runner.wake()
    applied: dict[str, str] = {}
    seconds = _wait_of(prefer, state.settings.longest_wait_s)
    if seconds is not None and search.state not in _OVER:
        search = await _wait_for(request, state, search.id, seconds) or search
        applied = {"Preference-Applied": f"wait={seconds:g}"}
    content = state.bodies.get(search.id) or await run_in_threadpool(rendered, state, search)
    headers = {"Location": f"/v1/searches/{search.id}", **applied}
    if search.state in _OVER:
        return Response(content, 200, headers, "application/json")
    return Response(content, 202, headers | _RETRY_AFTER, "application/json")


def _ask(body: SearchBody, state: State, principal: Principal) -> tuple[records.Search, bool]:
    request = search_request(body, state.settings)
    most = state.settings.most_waiting
    asked = ask(state.store, request, now=now(), created_by=principal.id, most_waiting=most)
    return asked.search, asked.stored


def _wait_of(prefer: str | None, longest: float) -> float | None:
    found = _WAIT.search(prefer.lower()) if prefer else None
    return min(float(found[1]), longest) if found else None


async def _wait_for(request: Request, state: State, search_id: str, seconds: float) -> records.Search | None:
    """The search once it is over, or as it stands when time is up, the client has gone or the server stops."""
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        await state.waiters.wait(search_id, min(max(left, 0.0), _LOOK_AGAIN_S))
        found = await run_in_threadpool(_look_up, state, search_id)
        over = found is None or found.state in _OVER
        if over or left <= 0 or state.stopping.is_set() or await request.is_disconnected():
            return found


@router.get("", response_model=SearchList, responses=problems(304), summary="List searches, newest first")
def list_searches(
    request: Request, state: Served, principal: Reader, query: Annotated[SearchesQuery, Query()]
) -> Response:
    """Filtered by state, status, model and cluster."""
    place = place_of(query.cursor, _NEWEST_FIRST, by_time=True)
    with state.store.reading() as repos:
        page = repos.searches.list(
            state=query.state,
            status=query.status,
            model=query.model,
            cluster=query.cluster,
            after=place,
            limit=query.limit,
        )
    names = ListedSearch.model_fields
    items = [ListedSearch(**{name: getattr(item, name) for name in names}) for item in page.items]
    return conditional(request, body_of(SearchList(items=items, next=cursor_of(page.next, _NEWEST_FIRST))))


@router.get("/{search_id}", response_model=Search, responses=problems(304, 404), summary="A search and its answer")
def get_search(request: Request, search_id: SearchId, state: Served, principal: Reader) -> Response:
    """As it stands: poll with ``If-None-Match``, or listen to ``/events``."""
    body = state.bodies.get(search_id)
    if body is not None:
        return conditional(request, body, cache=FOR_EVER)
    with state.store.reading() as repos:
        found = repos.searches.get(search_id)
        answer = None if found is None else stored_answer(repos, found)
    if found is None or answer is None:
        raise not_found("search", search_id)
    over = found.state in _OVER
    headers = {} if over else _RETRY_AFTER
    body = _body_kept(state, found, answer)
    return conditional(request, body, cache=FOR_EVER if over else "no-cache", headers=headers)


@router.post(
    "/{search_id}/cancel",
    status_code=202,
    response_model=Search,
    responses={200: {"model": Search, "description": "It is over."}, **problems(404, 413, 415)},
    summary="Stop a search",
)
def cancel_search(search_id: SearchId, state: Served, principal: Writer) -> Response:
    """A waiting search is cancelled at once, a running one in a moment; one that is over stays as it is."""
    search = cancel(search_id, state, principal)
    status = 200 if search.state in _OVER else 202
    return Response(rendered(state, search), status, {"Location": f"/v1/searches/{search_id}"}, "application/json")


def cancel(search_id: str, state: State, principal: Principal) -> records.Search:
    """Cancel; for the route above and for the button of a page.

    Raises:
        ProblemRaised: there is no such search, or it is somebody else's.
    """
    found = _look_up(state, search_id)
    if found is None:
        raise not_found("search", search_id)
    if found.created_by not in (None, principal.id) and "admin" not in principal.scopes:
        raise ProblemRaised(403, "another API key asked this; only it or an admin's may cancel it")
    with state.store.writing() as repos:
        search = repos.searches.request_cancel(search_id, now())
    assert search is not None, "searches are never removed"
    state.runner.wake()
    state.waiters.changed(search_id)
    return search


def _existing(search_id: SearchId, state: Served, principal: Reader) -> records.Search:
    found = _look_up(state, search_id)
    if found is None:
        raise not_found("search", search_id)
    return found


@router.get(
    "/{search_id}/events",
    response_class=EventSourceResponse,
    responses=problems(404),
    summary="What happens to a search, as server-sent events",
)
async def search_events(
    request: Request,
    state: Served,
    search: Annotated[records.Search, Depends(_existing)],
    last_event_id: LastEventId = None,
) -> AsyncIterable[ServerSentEvent]:
    """Ends with the search. Events are numbered: whoever comes back with ``Last-Event-ID`` gets what was missed.

    First ``queued`` and ``running``, then how far it is (``candidates``, ``relaxed``, ``incumbents``, ``listed``), in
    the end one of ``done``, ``failed`` and ``cancelled``; there may be other steps one day. ``data`` is a JSON object.
    """
    last = last_event_id or 0
    while not state.stopping.is_set():
        found = await run_in_threadpool(_events_after, state, search.id, last)
        for event in found:
            last = event.sequence
            yield ServerSentEvent(event=event.kind, id=str(event.sequence), data=event.data)
        if any(event.kind in _OVER for event in found):
            return
        if not found and search.state in _OVER:
            return
        await state.waiters.wait(search.id, _LOOK_AGAIN_S)
        if not found:
            now_is = await run_in_threadpool(_look_up, state, search.id)
            search = now_is if now_is is not None else search


def _events_after(state: State, search_id: str, sequence: int) -> list[records.Event]:
    with state.store.reading() as repos:
        return repos.events.after(search_id, sequence)


def _look_up(state: State, search_id: str) -> records.Search | None:
    with state.store.reading() as repos:
        return repos.searches.get(search_id)


def rendered(state: State, search: records.Search) -> bytes:
    """A search as JSON; kept, once it is over."""
    body = state.bodies.get(search.id)
    if body is not None:
        return body
    with state.store.reading() as repos:
        answer = stored_answer(repos, search)
    return _body_kept(state, search, answer)


def _body_kept(state: State, search: records.Search, answer: dict[str, Any]) -> bytes:
    body = body_of(Search.model_validate(answer))
    if search.state in _OVER:
        state.bodies.put(search.id, body)
    return body
