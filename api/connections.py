"""Connections: how many there may be, and how long a request may take to arrive.

Whoever opens connections and sends nothing, or half a header, would hold them for ever, and with them the files that
a server may open. What is answered, a stream of events or a long wait say, may take as long as it likes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_MOST_FILES = 65_536
_MOST_CONNECTIONS = 8_192
# Files that are no connections: databases, pipes to workers, the log; a share of the limit where it is low.
_KEPT_BACK = 128


class PatientProtocol(H11Protocol):
    """Uvicorn's, with an end to its patience.

    Attributes:
        header_within_s: seconds from the connection, or the last response, to the end of a header that has begun.
        body_within_s: seconds from there to the end of the body.
        most_connections: with more than that, the one that waited longest for its client is closed.
    """

    header_within_s: ClassVar[float] = 10.0
    body_within_s: ClassVar[float] = 30.0
    most_connections: ClassVar[int] = _MOST_CONNECTIONS
    # In the order in which they began to wait.
    _waiting: ClassVar[dict[PatientProtocol, asyncio.TimerHandle]] = {}

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._waits_for: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a header."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.most_connections:
            # Not before what has arrived meanwhile is read: whoever has asked already is not waited for.
            self.loop.call_later(0.0, self._make_room)

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing any more."""
        super().connection_lost(exc)
        self._stop_waiting()

    def handle_events(self) -> None:
        """After whatever arrived, or was answered, something else may be waited for."""
        super().handle_events()
        self._wait()

    def _make_room(self) -> None:
        """Close one that is waited for, unless enough have gone meanwhile; this one where all are answered."""
        if len(self.connections) > self.most_connections:
            next(iter(self._waiting), self).abort()

    def abort(self) -> None:
        """Close the connection at once, and make room for another one."""
        self._stop_waiting()
        self.connections.discard(self)
        self.transport.abort()

    def _wait(self) -> None:
        state = self.conn.their_state
        # Not so long after each byte, but in all.
        if state is not self._waits_for:
            self._stop_waiting()
            patience = {h11.IDLE: self.header_within_s, h11.SEND_BODY: self.body_within_s}.get(state)
            if patience is not None and not self.transport.is_closing():
                self._waits_for = state
                self._waiting[self] = self.loop.call_later(patience, self._give_up)

    def _stop_waiting(self) -> None:
        self._waits_for = None
        deadline = self._waiting.pop(self, None)
        if deadline is not None:
            deadline.cancel()

    def _give_up(self) -> None:
        self._stop_waiting()
        if self.flow.read_paused:
            # What was sent lies here, and we have not come to read it.
            self._wait()
        else:
            self.transport.close()


class OncePerMinute(logging.Filter):
    """Passes a complaint that is made again and again once a minute; asyncio has one for every refused connection."""

    def __init__(self, said: str, every_s: float = 60.0) -> None:
        super().__init__()
        self._said, self._every_s, self._last = said, every_s, -every_s

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is passed on."""
        if self._said not in str(record.msg):
            return True
        now = time.monotonic()
        if now - self._last < self._every_s:
            return False
        self._last = now
        return True


def prepare() -> None:
    """Make room for as many connections as this process may have, and keep the log short when there are more."""
    PatientProtocol.most_connections = _room()
    logging.getLogger("asyncio").addFilter(OncePerMinute("socket.accept() out of system resource"))


def _room() -> int:
    """How many connections fit, once this process may open as many files as it is allowed to, within reason."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return _MOST_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # macOS allows less than it says.
            pass
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else soft
    return max(1, min(_MOST_CONNECTIONS, files - min(_KEPT_BACK, files // 2)))
