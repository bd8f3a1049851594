"""A small HTTP server that answers as it is told to, for what a good server does seldom: fail, hang, break off."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One response.

    Attributes:
        drops: break the connection off instead of answering, or after the body was begun.
        after_s: how long to wait before it.
    """

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: str = "application/json"
    drops: bool = False
    after_s: float = 0.0


DROPPED = Reply(status=0, drops=True)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request that arrived."""

    at: float
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Scripted(ThreadingHTTPServer):
    """Gives its replies in their order, the last one again and again."""

    daemon_threads = True

    def __init__(self, *replies: Reply) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._replies, self._lock = list(replies), threading.Lock()
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def reply_to(self, seen: Seen) -> Reply:
        """The next reply."""
        with self._lock:
            self.seen.append(seen)
            return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is part of the script."""


@contextmanager
def scripted(*replies: Reply) -> Iterator[Scripted]:
    """A server for as long as the block runs."""
    with Scripted(*replies) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(at=time.monotonic(), method=self.command, path=self.path, headers=headers, body=body)
        reply = self.server.reply_to(seen)
        time.sleep(reply.after_s)
        self.close_connection = True
        if reply.status == 0:
            return
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        # A body that is shorter than was said is one that broke off.
        self.send_header("Content-Length", str(len(content) + 100 * reply.drops))
        self.send_header("Connection", "close")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if reply.status != 304:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Tests say what went wrong themselves."""
