"""Around every request: its id, its line in the log, its place in the counters, headers that keep browsers safe.

Also what holds for all routes: what is refused at once (``api.refusals``), how long a body may be, and HEAD, which is
answered like GET without the body.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import MutableMapping
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import Metrics
from api.problems import FAILED, problem_object, problem_response
from api.refusals import refusal, too_large
from planner.logs import enter_request

_LOG = logging.getLogger("planner.access")
_ERRORS = logging.getLogger("planner.api")
_GIVEN_ID = re.compile(r"[A-Za-z0-9._\-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_HEADERS = {
    # Plotly and htmx set styles on elements; scripts come from files of our own only.
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
}


class RequestMiddleware:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, loopback_only: bool, most_body_bytes: int) -> None:
        self.app, self.metrics, self.loopback_only = app, metrics, loopback_only
        self.most_body_bytes = most_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        identifier = given if _GIVEN_ID.fullmatch(given) else uuid4().hex
        enter_request(identifier)
        started, status, method = time.perf_counter(), 0, scope["method"]
        if method == "HEAD":
            scope, send = {**scope, "method": "GET"}, _without_body(send)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = MutableHeaders(scope=message)
                added["x-request-id"] = identifier
                for name, value in _HEADERS.items():
                    added.setdefault(name, value)
            await send(message)

        try:
            refused = refusal(scope, headers, loopback_only=self.loopback_only, most_body_bytes=self.most_body_bytes)
            if refused is not None:
                code, detail = refused
                await problem_response(problem_object(code, detail))(scope, receive, send_with_headers)
            else:
                await self.app(scope, _counted(receive, self.most_body_bytes), send_with_headers)
        except Exception as error:
            # Here and not in a handler of the framework's, which answers outside of this middleware.
            _ERRORS.error("a request failed", exc_info=error, extra={"path": scope["path"]})
            if status:
                raise
            await problem_response(problem_object(500, FAILED))(scope, receive, send_with_headers)
        finally:
            self._count(scope, method, status, time.perf_counter() - started)

    def _count(self, scope: MutableMapping[str, Any], method: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        counted = method if method in _METHODS else "other"
        self.metrics.requests.labels(counted, route, str(status)).inc()
        self.metrics.seconds.labels(counted, route).observe(seconds)
        principal = scope.get("state", {}).get("principal")
        fields = {"method": counted, "path": scope["path"], "route": route, "status": status}
        _LOG.info("request", extra={**fields, "seconds": round(seconds, 6), "api_key": principal})


def _counted(receive: Receive, most: int) -> Receive:
    """Reads a body as far as it may be long; FastAPI lets this error through, and it becomes a problem."""
    seen = 0

    async def receive_counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise HTTPException(*too_large(most))
        return message

    return receive_counted


def _without_body(send: Send) -> Send:
    """Ends a response as soon as it has begun, since a stream of events might go on for long."""
    ended = False

    async def send_start(message: Message) -> None:
        nonlocal ended
        if message["type"] == "http.response.body":
            if ended:
                return
            ended, message = True, {"type": "http.response.body", "body": b"", "more_body": False}
        await send(message)

    return send_start
