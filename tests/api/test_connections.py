"""Connections that bring nothing, or not all, do not stay; those that are answered slowly do. With real sockets."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from api.connections import OncePerMinute, PatientProtocol
from tests.api.conftest import Live
from tests.processes import eventually

_HALF_A_HEADER = b"POST / HTTP/1.1\r\nHost: x\r\n"
_HALF_A_BODY = _HALF_A_HEADER + b"Content-Length: 100\r\n\r\nhalf"


class _Hasty(PatientProtocol):
    header_within_s = 0.4
    body_within_s = 0.8
    most_connections = 20


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads a body and answers it, after a while if the path says so."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/slow":
        for _ in range(4):
            await send({"type": "http.response.body", "body": b"~", "more_body": True})
            await asyncio.sleep(0.4)
    await send({"type": "http.response.body", "body": body})


@contextmanager
def _serving() -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(_echo, http=_Hasty, lifespan="off", log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    assert eventually(lambda: server.started, 10)
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server that is in a hurry."""
    with _serving() as found:
        yield found


def _open_for(port: int, *parts: bytes) -> float:
    """Seconds until the server closes a connection that brings these parts, a fifth of a second apart."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.settimeout(0.2)
        waiting = list(parts)
        while time.monotonic() - started < 10:
            if waiting:
                connection.sendall(waiting.pop(0))
            try:
                if not connection.recv(4096):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    return time.monotonic() - started


def test_nothing_is_not_waited_for(port: int) -> None:
    assert 0.3 < _open_for(port) < 2


def test_half_a_header_is_not_waited_for(port: int) -> None:
    assert 0.3 < _open_for(port, _HALF_A_HEADER) < 2
    # A letter now and then makes no difference.
    assert 0.3 < _open_for(port, *(bytes([letter]) for letter in _HALF_A_HEADER)) < 2


def test_half_a_body_is_not_waited_for(port: int) -> None:
    assert 0.7 < _open_for(port, _HALF_A_BODY, *[b"x"] * 30) < 3


def test_the_next_request_has_to_be_complete_too(port: int) -> None:
    whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"

    assert 0.3 < _open_for(port, whole, whole + _HALF_A_HEADER) < 3


def test_an_answer_may_take_as_long_as_it_likes(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        for _ in range(2):
            assert client.post("/slow", content=b"body").content == b"~~~~body"


def test_when_there_are_too_many_those_that_wait_make_room(port: int) -> None:
    with ExitStack() as stack, httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        slow = threading.Thread(target=lambda: answers.append(client.get("/slow").content))
        answers: list[bytes] = []
        slow.start()
        for number in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)).sendall(_HALF_A_HEADER)
            if number % 25 == 24:
                assert httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).status_code == 200
        slow.join()
    assert answers == [b"~~~~"]


def test_a_complaint_is_passed_on_once_a_minute() -> None:
    filtered = OncePerMinute("out of files", every_s=0.2)

    def passes(message: str) -> bool:
        return filtered.filter(logging.LogRecord("x", logging.ERROR, "", 0, message, None, None))

    assert [passes("socket is out of files") for _ in range(3)] == [True, False, False]
    assert passes("something else")
    time.sleep(0.25)
    assert passes("socket is out of files")


def test_a_server_opens_as_many_files_as_it_may_and_goes_on_answering(live: Live) -> None:
    soft, hard = resource.prlimit(live.server.process.pid, resource.RLIMIT_NOFILE)
    assert soft == min(hard, 65_536)

    with ExitStack() as stack:
        for _ in range(300):
            connection = socket.create_connection(("127.0.0.1", live.server.port), timeout=10)
            stack.enter_context(connection).sendall(_HALF_A_HEADER)
        assert httpx.get(f"{live.url}/healthz", trust_env=False).status_code == 200


@pytest.mark.slow
def test_a_server_closes_what_brings_nothing(live: Live) -> None:
    assert _open_for(live.server.port, _HALF_A_HEADER) < 11
