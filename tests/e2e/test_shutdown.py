"""SIGTERM and Ctrl-C: everything that is open ends in time, and what is not finished is left to the next server."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.audit import count, wrong_with
from tests.e2e.servers import Server, lasting, serving
from tests.processes import alive, eventually

pytestmark = pytest.mark.slow

_GRACE_S = 10.0


def test_a_stopped_server_ends_what_is_open_and_leaves_the_search_to_the_next(sqlite_url: str, tmp_path: Path) -> None:
    # Longer than a server waits for what runs, when it is asked to end.
    question = lasting(10)
    with serving(sqlite_url, tmp_path) as first, ThreadPoolExecutor(2) as clients:
        search_id = first.ask(question).json()["id"]
        waiting = clients.submit(first.ask, question, 60)
        listening = clients.submit(first.events, search_id)
        ended_well(first, sqlite_url, signal.SIGTERM)
        assert waiting.result(5.0).status_code == 202
        heard = listening.result(5.0)
        assert heard[:2] == ["queued", "running"]
        assert "done" not in heard
    assert count(sqlite_url, f"searches WHERE id = '{search_id}' AND state = 'queued'") == 1
    with serving(sqlite_url, tmp_path) as second:
        assert second.finished(search_id)["state"] == "done"
        assert second.ask(question).json()["id"] == search_id
    assert wrong_with(sqlite_url) == []


def test_ctrl_c_once_is_enough(postgres_url: str, tmp_path: Path) -> None:
    with serving(postgres_url, tmp_path) as server:
        search_id = server.ask(lasting(60)).json()["id"]
        ended_well(server, postgres_url, signal.SIGINT)
    assert count(postgres_url, f"searches WHERE id = '{search_id}' AND state = 'queued'") == 1
    assert wrong_with(postgres_url) == []


def ended_well(server: Server, url: str, number: signal.Signals) -> None:
    """Stop a server in the middle of its search."""
    assert eventually(lambda: count(url, "search_events WHERE kind = 'candidates'") == 1, 20.0)
    workers = server.workers
    code, seconds = server.terminate(number)
    assert (code, seconds < _GRACE_S) == (0, True), (code, seconds)
    assert not any(alive(pid) for pid in workers)
    assert server.complaints() == []


def test_an_idle_server_ends_at_once_though_clients_keep_their_connections(sqlite_url: str, tmp_path: Path) -> None:
    with serving(sqlite_url, tmp_path) as server:
        assert server.client.get("/healthz").status_code == 200
        code, seconds = server.terminate()
        assert (code, seconds < 3.0) == (0, True), (code, seconds)
        assert '"level": "WARNING"' not in server.written()
        assert server.complaints() == []
