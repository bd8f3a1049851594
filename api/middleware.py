"""Around every request: its id, its line in the log, its place in the counters, headers that keep browsers safe.

Also refuses what only a browser that was led astray would send: another site's form or script, and, where no API keys
are asked for, a host name that is not loopback's (DNS rebinding).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import Metrics
from api.problems import problem_object, problem_response
from planner.logs import enter_request

_LOG = logging.getLogger("planner.access")
_GIVEN_ID = re.compile(r"[A-Za-z0-9._\-]{1,64}")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
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

    def __init__(self, app: ASGIApp, *, metrics: Metrics, loopback_only: bool) -> None:
        self.app, self.metrics, self.loopback_only = app, metrics, loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        identifier = given if _GIVEN_ID.fullmatch(given) else uuid4().hex
        enter_request(identifier)
        started, status = time.perf_counter(), 500

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
            refused = _refusal(scope["method"], headers, loopback_only=self.loopback_only)
            if refused is not None:
                code, detail = refused
                await problem_response(problem_object(code, detail))(scope, receive, send_with_headers)
            else:
                await self.app(scope, receive, send_with_headers)
        finally:
            self._count(scope, status, time.perf_counter() - started)

    def _count(self, scope: MutableMapping[str, Any], status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in {*_SAFE_METHODS, "POST", "PUT", "PATCH", "DELETE"} else "other"
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(method, route).observe(seconds)
        principal = scope.get("state", {}).get("principal")
        fields = {"method": method, "path": scope["path"], "route": route, "status": status}
        _LOG.info("request", extra={**fields, "seconds": round(seconds, 6), "api_key": principal})


def _refusal(method: str, headers: Headers, *, loopback_only: bool) -> tuple[int, str] | None:
    """Status and reason for what no honest client sends; None to go on."""
    host = headers.get("host", "")
    if loopback_only and _name_of(host) not in _LOOPBACK_NAMES:
        return 421, "this server asks for no API keys and answers on loopback names only, such as 127.0.0.1"
    if method in _SAFE_METHODS:
        return None
    origin = headers.get("origin")
    crosses = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    if crosses or (origin is not None and urlsplit(origin).netloc != host):
        return 403, "another site's page may not send this"
    return None


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
