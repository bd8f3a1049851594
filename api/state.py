"""What a running server holds: settings, store, runner, counters, and who waits for which search."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from threading import Event
from typing import cast

from fastapi import Request

from api.endings import Endings
from api.last_used import LastUsed
from api.metrics import Metrics
from api.settings import Settings
from db.store import Store
from planner.running.runner import Runner

_MOST_BYTES = 64 * 2**20
_LARGEST = 4 * 2**20


class Kind(Enum):
    """What a kept body is of: ids of different kinds are names in different lists."""

    PLAN = "plan"
    SEARCH = "search"


class Recent:
    """The rendered bodies that were used last, of what never changes once it is there. Safe for several threads.

    Args:
        most_bytes: of all bodies together.
        largest: a body that is longer is not kept; so one of them can't push out all others.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES, largest: int = _LARGEST) -> None:
        self._largest = largest
        self._bodies: LastUsed[tuple[Kind, str], bytes] = LastUsed(most_bytes, len)

    def get(self, kind: Kind, id: str) -> bytes | None:
        """The body; None when it is not kept."""
        return self._bodies.find((kind, id))

    def put(self, kind: Kind, id: str, body: bytes) -> None:
        """Keep a body, instead of those that were not used for longest."""
        if len(body) <= self._largest:
            self._bodies.put((kind, id), body)


@dataclass(kw_only=True)
class State:
    """Of one application.

    Attributes:
        bodies: rendered searches that are over, and plans: neither ever changes.
        stopping: set when the server has been told to stop, so that streams and waits end.
    """

    settings: Settings
    metrics: Metrics
    store: Store
    runner: Runner
    waiters: Waiters
    endings: Endings
    bodies: Recent = field(default_factory=Recent)
    stopping: Event = field(default_factory=Event)


class Waiters:
    """Requests that wait for a search: woken when this process wrote something about it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: dict[str, set[asyncio.Event]] = {}

    def changed(self, search_id: str) -> None:
        """Wake who waits for a search; may be called from any thread, also while the loop is closing."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, search_id)

    def _wake(self, search_id: str) -> None:
        for event in self._events.get(search_id, ()):
            event.set()

    async def wait(self, search_id: str, seconds: float) -> None:
        """Until something was written about the search, or time is up."""
        event = asyncio.Event()
        self._events.setdefault(search_id, set()).add(event)
        try:
            await asyncio.wait_for(event.wait(), max(seconds, 0.0))
        except TimeoutError:
            pass
        finally:
            self._events[search_id].discard(event)
            if not self._events[search_id]:
                del self._events[search_id]


async def state_of(request: Request) -> State:
    """The state of the application that handles this request; async, as it need not wait for a thread."""
    return cast(State, request.app.state.planner)
