"""``/v1/searches/{id}/events``: what happens to a search, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api.auth import KeyFirst, Reader
from api.routes.common import LOOK_AGAIN_S, LastEventId, SearchId, Served, look_up, problems
from api.schemas.answers.searches import OVER
from api.state import State
from db import records

router = APIRouter(prefix="/v1/searches", tags=["searches"], route_class=KeyFirst)

_LARGEST_NUMBER = 2**31 - 1


def _seen(last_event_id: LastEventId = None) -> int:
    text = (last_event_id or "").strip()
    return min(int(text[:10]), _LARGEST_NUMBER) if text.isascii() and text.isdigit() else 0


def _listened_to(
    search_id: SearchId, state: Served, principal: Reader, seen: Annotated[int, Depends(_seen)]
) -> records.Search:
    """The search, unless there is nothing left to be told: a browser that gets 204 does not come back."""
    search = look_up(state, search_id)
    if search.state in OVER and not _events_after(state, search_id, seen):
        raise HTTPException(204)
    return search


@router.get(
    "/{search_id}/events",
    response_class=EventSourceResponse,
    responses={204: {"description": "The search is over, and `Last-Event-ID` was its last event."}, **problems(404)},
    summary="What happens to a search, as server-sent events",
)
async def search_events(
    request: Request,
    state: Served,
    search: Annotated[records.Search, Depends(_listened_to)],
    seen: Annotated[int, Depends(_seen)],
) -> AsyncIterable[ServerSentEvent]:
    """Ends with the search. Events are numbered: whoever comes back with ``Last-Event-ID`` gets what was missed.

    First ``queued`` and ``running``, then how far it is (``candidates``, ``relaxed``, ``incumbents``, ``listed``), in
    the end one of ``done``, ``failed`` and ``cancelled``; there may be other steps one day. ``data`` is a JSON object.
    """
    # Something at once, so that whatever is in between passes the beginning on.
    yield ServerSentEvent(comment="listening")
    while not state.stopping.is_set():
        found = await run_in_threadpool(_events_after, state, search.id, seen)
        for event in found:
            seen = event.sequence
            yield ServerSentEvent(event=event.kind, id=str(event.sequence), data=event.data)
        if any(event.kind in OVER for event in found) or (not found and search.state in OVER):
            return
        await state.waiters.wait(search.id, LOOK_AGAIN_S)
        if not found:
            search = await run_in_threadpool(look_up, state, search.id)


def _events_after(state: State, search_id: str, sequence: int) -> list[records.Event]:
    with state.store.reading() as repos:
        return repos.events.after(search_id, sequence)
