"""What a running server holds: settings, store, runner, counters, and who waits for which search."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Generic, TypeVar, cast

from fastapi import Request

from api.metrics import Metrics
from api.settings import Settings
from db.store import Store
from planner.running.runner import Runner

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The values that were used last, for what never changes once it is there. Safe for several threads."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)


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
    bodies: Recent[str, bytes] = field(default_factory=lambda: Recent(512))
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
