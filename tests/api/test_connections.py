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
from typing import ClassVar

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


class _Small(PatientProtocol):
    """Closes nothing but for want of room, however slow the machine is."""

    header_within_s = 600.0
    body_within_s = 600.0
    most_connections = 20
    _waiting: ClassVar[dict[PatientProtocol, asyncio.TimerHandle]] = {}


_STUCK, _LET_GO = threading.Event(), threading.Event()


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads a body and answers it, after a while if the path says so, in which nothing else may be done."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    if scope["path"] == "/stuck":
        _STUCK.set()
        _LET_GO.wait(60)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/slow":
        for _ in range(4):
            await send({"type": "http.response.body", "body": b"~", "more_body": True})
            await asyncio.sleep(0.4)
    await send({"type": "http.response.body", "body": body})


@contextmanager
def _serving(protocol: type[PatientProtocol]) -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(_echo, http=protocol, lifespan="off", log_config=None, access_log=False))
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
    with _serving(_Hasty) as found:
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


@pytest.fixture(scope="module")
def full_port() -> Iterator[int]:
    """Of a server that has time, but little room."""
    with _serving(_Small) as found:
        yield found


def test_when_there_are_too_many_those_that_wait_make_room(full_port: int) -> None:
    url = f"http://127.0.0.1:{full_port}"
    with ExitStack() as stack, httpx.stream("GET", f"{url}/slow", trust_env=False, timeout=60) as slow:
        # It is answered from here on, and has to be to the end.
        answer = slow.iter_raw()
        begun = next(answer)
        for number in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", full_port), timeout=10)).sendall(_HALF_A_HEADER)
            if number % 25 == 24:
                assert httpx.get(f"{url}/", trust_env=False, timeout=60).status_code == 200
        assert begun + b"".join(answer) == b"~~~~"


def test_who_has_asked_is_not_waited_for_even_if_nobody_came_to_read_it(full_port: int) -> None:
    """The server does something else while a request arrives, and after it more connections than there is room for."""
    address = ("127.0.0.1", full_port)
    with ExitStack() as stack:
        stuck = stack.enter_context(socket.create_connection(address, timeout=60))
        _LET_GO.clear()
        stuck.sendall(b"GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n")
        assert _STUCK.wait(60)
        asking = stack.enter_context(socket.create_connection(address, timeout=60))
        asking.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(30):
            stack.enter_context(socket.create_connection(address, timeout=60)).sendall(_HALF_A_HEADER)
        _LET_GO.set()
        assert asking.recv(4096).startswith(b"HTTP/1.1 200")


def test_where_all_are_answered_there_is_no_room_for_another(full_port: int) -> None:
    slow = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
    with ExitStack() as stack:
        answered = []
        for _ in range(_Small.most_connections):
            answered.append(stack.enter_context(socket.create_connection(("127.0.0.1", full_port), timeout=60)))
            answered[-1].sendall(slow)
            assert answered[-1].recv(4096).startswith(b"HTTP/1.1 200")
        more = stack.enter_context(socket.create_connection(("127.0.0.1", full_port), timeout=60))
        try:
            more.sendall(slow)
            closed = not more.recv(4096)
        except ConnectionError:
            closed = True
        assert closed


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
