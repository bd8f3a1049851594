"""``/v1/searches``: ask, look, wait, cancel."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from api.auth import KeyFirst, Principal, Reader, Writer, check_may_cancel
from api.conditional import FOR_EVER, body_of, conditional
from api.idempotency import REPLAYED, IdempotencyKey, Once
from api.paging import NEWEST_FIRST, cursor_of, place_of
from api.preferences import wait_of
from api.problems import not_found
from api.questions import search_request
from api.routes.common import LOOK_AGAIN_S, SearchId, Served, look_up, now, problems
from api.schemas.answers import Search, SearchList
from api.schemas.answers.searches import OVER
from api.schemas.queries import SearchesQuery
from api.schemas.requests import SearchBody
from api.state import Kind, State
from api.translation import listed_search
from db import records
from planner.search.request import SearchRequest
from planner.service import ask
from planner.stored.answers import stored_answer

router = APIRouter(prefix="/v1/searches", tags=["searches"], route_class=KeyFirst)

_RETRY_AFTER = {"Retry-After": "1"}

Prefer = Annotated[
    str | None,
    Header(
        alias="Prefer",
        description="`wait=N`: wait N seconds for the answer, 60 at most (RFC 7240). Other preferences are ignored.",
        examples=["wait=30"],
    ),
]


async def _wait(request: Request, state: Served, prefer: Prefer = None) -> float | None:
    # The parameter holds one line, and there may be several.
    return None if prefer is None else wait_of(request.headers.getlist("prefer"), state.settings.longest_wait_s)


Wait = Annotated[float | None, Depends(_wait)]
CacheControl = Annotated[
    str | None,
    Header(
        alias="Cache-Control",
        description="`no-cache`: search again where a deadline cut the stored answer. Proven answers stay.",
        examples=["no-cache"],
    ),
]


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
    wait: Wait = None,
    key: IdempotencyKey = None,
    cache_control: CacheControl = None,
) -> Response:
    """What was answered before is answered at once; otherwise follow ``Location``, or ask with ``Prefer: wait=N``.

    Whoever asks a question that somebody asked already, and that is not answered yet, shares the search. A request that
    is sent again with its key gets the same search as it stands then.
    """
    once = Once(state.store, principal, key, "POST /v1/searches", body)
    anew = cache_control is not None and "no-cache" in cache_control.lower()
    search, again = await run_in_threadpool(_ask_once, once, body, state, principal, anew)
    headers = {"Location": _path_of(search.id), **({REPLAYED: "true"} if again else {})}
    if wait is not None and search.state not in OVER:
        search = await _wait_for(request, state, search.id, wait)
        headers["Preference-Applied"] = f"wait={wait:g}"
    content = state.bodies.get(Kind.SEARCH, search.id) or await run_in_threadpool(_rendered, state, search)
    if search.state in OVER:
        return Response(content, 200, headers, "application/json")
    return Response(content, 202, headers | _RETRY_AFTER, "application/json")


def _ask_once(
    once: Once, body: SearchBody, state: State, principal: Principal, anew: bool
) -> tuple[records.Search, bool]:
    """The search, and whether this very request had asked for it before."""
    earlier = once.claim()
    if earlier is not None:
        return look_up(state, str(earlier.headers["location"]).rpartition("/")[2]), True
    with once.or_forgotten():
        search = ask_search(body, state, principal, anew)
        # Where it is, and not how it stands, which changes; and answers may have many megabytes.
        once.keep(Response(status_code=202, headers={"Location": _path_of(search.id)}))
    return search, False


def ask_search(body: SearchBody, state: State, principal: Principal, anew: bool = False) -> records.Search:
    """The answered search, the one on its way, or a new one.

    Raises:
        InvalidInput: a field is unusable.
        Busy: too many searches wait.
    """
    return ask_request(search_request(body, state.settings), state, principal, anew)


def ask_request(request: SearchRequest, state: State, principal: Principal, anew: bool = False) -> records.Search:
    """The same for a question whose names are resolved."""
    most = state.settings.most_waiting
    asked = ask(state.store, request, now=now(), created_by=principal.id, most_waiting=most, anew=anew)
    done = asked.search.state == "done"
    state.metrics.questions.labels("stored" if done and asked.stored else "joined" if asked.stored else "new").inc()
    if asked.search.state == "queued":
        state.runner.wake()
    return asked.search


async def _wait_for(request: Request, state: State, search_id: str, seconds: float) -> records.Search:
    """The search once it is over, or as it stands when time is up, the client has gone or the server stops."""
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        await state.waiters.wait(search_id, min(max(left, 0.0), LOOK_AGAIN_S))
        found = await run_in_threadpool(look_up, state, search_id)
        over = found.state in OVER
        if over or left <= 0 or state.stopping.is_set() or await request.is_disconnected():
            return found


def _path_of(search_id: str) -> str:
    return f"/v1/searches/{search_id}"


@router.get("", response_model=SearchList, responses=problems(304), summary="List searches, newest first")
def list_searches(
    request: Request, state: Served, principal: Reader, query: Annotated[SearchesQuery, Query()]
) -> Response:
    """Filtered by state, status, model, cluster and age."""
    return conditional(request, body_of(listed(state, query)))


def listed(state: State, query: SearchesQuery, *, parts: bool = False) -> SearchList:
    """A page of the list.

    Args:
        parts: model and cluster may be parts of names, whatever the case of their letters.
    """
    place = place_of(query.cursor, NEWEST_FIRST, query.filters, by_time=True)
    since = None if query.age is None else now() - query.age
    with state.store.reading() as repos:
        filters = query.filters | {"since": since, "parts": parts}
        page = repos.searches.list(**filters, after=place, limit=query.limit)
    further = cursor_of(page.next, NEWEST_FIRST, query.filters)
    return SearchList(items=[listed_search(item) for item in page.items], next=further)


@router.get("/{search_id}", response_model=Search, responses=problems(304, 404), summary="A search and its answer")
def get_search(request: Request, search_id: SearchId, state: Served, principal: Reader) -> Response:
    """As it stands: poll with ``If-None-Match``, or listen to ``/events``."""
    body = state.bodies.get(Kind.SEARCH, search_id)
    if body is not None:
        return conditional(request, body, cache=FOR_EVER)
    with state.store.reading() as repos:
        found = repos.searches.get(search_id)
        if found is None:
            raise not_found("search", search_id)
        answer = stored_answer(repos, found)
    body = _body_kept(state, found, answer)
    if found.state in OVER:
        return conditional(request, body, cache=FOR_EVER)
    return conditional(request, body, headers=_RETRY_AFTER)


@router.post(
    "/{search_id}/cancel",
    status_code=202,
    response_model=Search,
    responses={200: {"model": Search, "description": "It is over."}, **problems(404, 413, 415)},
    summary="Stop a search",
)
def cancel_search(search_id: SearchId, state: Served, principal: Writer) -> Response:
    """A waiting search is cancelled at once, a running one in a moment; one that is over stays as it is.

    It ends for all who asked the same question and wait.
    """
    found = look_up(state, search_id)
    check_may_cancel(principal, found.created_by)
    with state.store.writing() as repos:
        search = repos.searches.request_cancel(search_id, now())
    assert search is not None, "searches are never removed"
    state.runner.wake()
    state.waiters.changed(search_id)
    status = 200 if search.state in OVER else 202
    return Response(_rendered(state, search), status, {"Location": _path_of(search_id)}, "application/json")


def _rendered(state: State, search: records.Search) -> bytes:
    """A search as JSON; kept, once it is over."""
    with state.store.reading() as repos:
        answer = stored_answer(repos, search)
    return _body_kept(state, search, answer)


def _body_kept(state: State, search: records.Search, answer: dict[str, Any]) -> bytes:
    body = body_of(Search.model_validate(answer))
    if search.state in OVER:
        state.bodies.put(Kind.SEARCH, search.id, body)
    return body
