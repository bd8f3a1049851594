"""Problems as pages for browsers. Programs, and everything under ``/v1``, keep the problem object.

Around the whole application, so that no route has to think of it, nor a path that no route knows.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.dashboard.accept import HTML, JSON, preferred
from api.dashboard.rendering import html
from api.problems import MEDIA_TYPE


class ErrorPages:
    """Wraps the application: same status, same headers, other body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _is_for_a_browser(scope):
            await self.app(scope, receive, _PageInstead(send).send)
        else:
            await self.app(scope, receive, send)


class _PageInstead:
    """Passes a response on, unless it is a problem: that is held back until it is whole."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_problem(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_page(self._start)

    async def _send_page(self, start: Message) -> None:
        content = _page_of(self._body)
        headers = MutableHeaders(scope=start)
        headers["content-type"] = "text/html; charset=utf-8"
        headers["content-length"] = str(len(content))
        headers["vary"] = "Accept"
        await self._send(start)
        await self._send({"type": "http.response.body", "body": content})


def _page_of(body: bytes) -> bytes:
    problem: dict[str, Any] = json.loads(body)
    shown = {name: problem.get(name) for name in ("title", "status", "detail", "request_id", "errors")}
    return html("problem.html", problem=shown).encode()


def _is_for_a_browser(scope: MutableMapping[str, Any]) -> bool:
    accept = Headers(scope=scope).get("accept", "")
    path = scope["path"]
    # HEAD has no body to turn into a page.
    asks = preferred(accept, (MEDIA_TYPE, JSON, HTML)) == HTML and scope["method"] != "HEAD"
    return asks and not path.startswith("/v1/") and not path.endswith(".json")


def _is_problem(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith(MEDIA_TYPE)
