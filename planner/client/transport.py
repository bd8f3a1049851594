"""One request, sent as often as is safe and needed, until there is a response or an error in our own words.

Only what may be repeated is: GET, and POST with an Idempotency-Key, which the server carries out once per key.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from planner.client.errors import (
    BadRequest,
    ClientError,
    NotAllowed,
    NotThere,
    ServerFailed,
    ServerUnavailable,
)
from planner.client.retrying import AGAIN_STATUSES, IN_PROGRESS, Backoff, told_of

_CONNECT_S = 5.0
# What may be the network's or the server's passing trouble; anything else is not better the next time.
_PASSING = (
    httpx.TimeoutException,
    httpx.NetworkError,
    httpx.RemoteProtocolError,
    httpx.ProxyError,
)
_BAD_REQUEST = frozenset({400, 413, 415, 422})
_NOT_ALLOWED = frozenset({401, 403, 421})
_LONGEST_DETAIL = 500


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request.

    Attributes:
        body: the JSON object to send.
        repeatable: whether sending it twice does no harm.
        waits_s: how long the server was asked to take, beyond what any request may take.
        accepted: statuses that are answers although they are not 2xx.
    """

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    repeatable: bool = True
    waits_s: float = 0.0
    accepted: frozenset[int] = frozenset()


class Transport:
    """Sends calls to one server; may be used by several threads at once.

    Args:
        url: of the server, for messages.
        timeout_s: for each attempt to get the next bytes of a response.
        retries: how often a call is repeated at most.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], *, timeout_s: float, retries: int, through_proxies: bool
    ) -> None:
        self.url = url
        self.retries = retries
        self.backoff = Backoff()
        self._timeout_s = timeout_s
        self._http = httpx.Client(base_url=url, headers=dict(headers), trust_env=through_proxies)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def document(self, call: Call) -> Any:
        """The JSON of a response."""
        return self.document_of(self.send(call))

    def document_of(self, response: httpx.Response) -> Any:
        """The JSON of a response.

        Raises:
            ServerFailed: it is none, so whatever answers is no planner.
        """
        try:
            return response.json()
        except ValueError:
            kind = response.headers.get("content-type", "something unnamed")
            raise ServerFailed(
                f"{self.url} answers with {kind}, not with JSON: is it a planner?", status=response.status_code
            ) from None

    def send(self, call: Call, *, retries: int | None = None) -> httpx.Response:
        """The response, when it is a good one.

        Args:
            retries: instead of the client's own number.

        Raises:
            ClientError: what the response, or its absence, means.
        """
        most = self.retries if retries is None else retries
        content = _encoded(call.body)
        patient_until = time.monotonic() + call.waits_s + self._timeout_s
        attempt = 0
        while True:
            response: httpx.Response | None = None
            try:
                response = self._once(call, content)
                if response.is_success or response.status_code in call.accepted:
                    return response
                error, again = self.error_of(response), response.status_code in AGAIN_STATUSES
            except _PASSING as caught:
                error, again = self._unreachable(caught, call), True
            except httpx.HTTPError as caught:
                raise ServerFailed(f"{self.url} can't be asked: {_reason(caught)}") from None
            told = told_of(response.headers) if response is not None else None
            # Our own first attempt is still at work, as its connection was lost: that ends, so it costs no retry.
            ours = response is not None and response.status_code == 409 and error.problem.get("type") == IN_PROGRESS
            if ours and time.monotonic() < patient_until:
                time.sleep(self.backoff.pause(0, told))
                continue
            if not call.repeatable or not again or attempt >= most:
                raise error from None
            time.sleep(self.backoff.pause(attempt, told))
            attempt += 1

    @contextmanager
    def streaming(self, call: Call, *, silent_s: float) -> Iterator[httpx.Response]:
        """A response whose body is read as it comes. Sent once.

        Args:
            silent_s: longest time without a byte.

        Raises:
            ClientError: as ``send``; also when the connection breaks inside the block.
        """
        timeout = httpx.Timeout(silent_s, connect=min(_CONNECT_S, silent_s))
        request = self._http.build_request(
            call.method, call.path, params=dict(call.query), headers=dict(call.headers), timeout=timeout
        )
        try:
            response = self._http.send(request, stream=True)
            try:
                if not response.is_success:
                    response.read()
                    raise self.error_of(response)
                yield response
            finally:
                response.close()
        except _PASSING as caught:
            raise self._unreachable(caught, call) from None
        except httpx.HTTPError as caught:
            raise ServerFailed(f"{self.url} can't be asked: {_reason(caught)}") from None

    def error_of(self, response: httpx.Response) -> ClientError:
        """What a response that is no answer means."""
        status, problem = response.status_code, _problem_of(response)
        detail = str(problem.get("detail") or f"{self.url} answered {status} {response.reason_phrase}".strip())
        detail = detail[:_LONGEST_DETAIL]
        if status in _BAD_REQUEST:
            return BadRequest(detail, status=status, problem=problem)
        if status in _NOT_ALLOWED:
            return NotAllowed(f"{self.url} does not allow it: {detail}", status=status, problem=problem)
        if status == 404 and problem:
            return NotThere(detail, status=status, problem=problem)
        if status in AGAIN_STATUSES or problem.get("type") == IN_PROGRESS:
            return ServerUnavailable(f"{self.url} can't answer now: {detail}", status=status, problem=problem)
        if response.is_redirect:
            detail = f"it answers that it moved to {response.headers.get('location', '?')[:200]}: use that address"
        return ServerFailed(f"{self.url} failed: {detail}", status=status, problem=problem)

    def _once(self, call: Call, content: bytes | None) -> httpx.Response:
        timeout = httpx.Timeout(self._timeout_s, connect=min(_CONNECT_S, self._timeout_s))
        timeout.read = self._timeout_s + call.waits_s
        kind = {} if content is None else {"Content-Type": "application/json"}
        return self._http.request(
            call.method,
            call.path,
            params=dict(call.query),
            headers={**kind, **call.headers},
            content=content,
            timeout=timeout,
        )

    def _unreachable(self, error: httpx.HTTPError, call: Call) -> ServerUnavailable:
        if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
            return ServerUnavailable(f"{self.url} can't be reached: {_reason(error)}")
        if isinstance(error, httpx.TimeoutException):
            return ServerUnavailable(f"{self.url} did not answer in time ({call.method} {call.path})")
        return ServerUnavailable(f"{self.url} broke the connection off: {_reason(error)}")


def _encoded(body: Mapping[str, Any] | None) -> bytes | None:
    if body is None:
        return None
    try:
        return json.dumps(body, allow_nan=False).encode("ascii")
    except (TypeError, ValueError) as error:
        raise BadRequest(f"the question can't be written as JSON: {error}") from None


def _problem_of(response: httpx.Response) -> dict[str, Any]:
    """The problem object of a response; empty when it has none."""
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("type"), str) else {}


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
