"""Two servers on one PostgreSQL: either answers for the other, and survives it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from db.engine import engine_of
from db.urls import database_url
from tests.databases import PostgresServer
from tests.e2e.audit import count, wrong_with
from tests.e2e.servers import MEDIUM, SMALL, Server, lasting, serving
from tests.processes import alive, eventually

pytestmark = pytest.mark.slow

_LEASE_S = 10.0
_PATIENCE_S = 20.0

Pair = tuple[Server, Server]


@contextmanager
def two_servers(url: str, folder: Path) -> Iterator[Pair]:
    with serving(url, folder) as one, serving(url, folder) as other:
        yield one, other


@pytest.fixture(scope="module")
def shared_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create()
    yield url
    postgres_server.drop(url)


@pytest.fixture(scope="module")
def pair(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two servers for the tests that leave them alive."""
    with two_servers(shared_url, tmp_path_factory.mktemp("pair")) as both:
        yield both


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    engine = engine_of(database_url(url))
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def owner_of(url: str, servers: Sequence[Server], search_id: str) -> Server:
    """Whoever works on a search."""

    def owner() -> str | None:
        with connected(url) as connection:
            query = text("SELECT owner FROM searches WHERE id = :id AND state = 'running'")
            return connection.execute(query, {"id": search_id}).scalar_one_or_none()

    assert eventually(lambda: owner() is not None, _PATIENCE_S)
    # Owners are called after their host, process and a random word.
    pid = int(str(owner()).rsplit("-", 2)[1])
    return next(server for server in servers if server.process.pid == pid)


def test_what_one_was_asked_the_other_tells(pair: Pair) -> None:
    one, other = pair
    asked = one.ask(MEDIUM | {"top": 10})
    assert asked.status_code == 202
    search_id = asked.json()["id"]
    kinds = other.events(search_id)
    assert (kinds[0], kinds[-1]) == ("queued", "done")
    assert {"running", "candidates", "listed"} < set(kinds)
    first, second = (server.client.get(f"/v1/searches/{search_id}") for server in pair)
    assert first.json()["state"] == "done"
    assert (first.content, first.headers["ETag"]) == (second.content, second.headers["ETag"])
    unchanged = other.client.get(f"/v1/searches/{search_id}", headers={"If-None-Match": first.headers["ETag"]})
    assert unchanged.status_code == 304
    again = other.ask(MEDIUM | {"top": 10})
    assert (again.status_code, again.json()["id"]) == (200, search_id)


def test_either_may_be_told_to_cancel(pair: Pair, shared_url: str) -> None:
    search_id = pair[0].ask(lasting(60)).json()["id"]
    owner = owner_of(shared_url, pair, search_id)
    (other,) = {*pair} - {owner}
    assert other.client.post(f"/v1/searches/{search_id}/cancel").status_code == 202
    assert other.finished(search_id, 10.0)["state"] == "cancelled"
    assert pair[0].state(search_id) == "cancelled"


def test_fifty_clients_of_both_cause_one_search(pair: Pair, shared_url: str) -> None:
    before = count(shared_url, "searches")
    question = SMALL | {"devices": 128}
    with ThreadPoolExecutor(50) as clients:
        answers = list(clients.map(lambda number: pair[number % 2].ask(question, wait=60), range(50)))
    assert [answer.status_code for answer in answers] == [200] * 50
    assert len({answer.content for answer in answers}) == 1
    assert count(shared_url, "searches") == before + 1


def test_a_third_finishes_for_one_that_was_killed_and_one_that_was_frozen(postgres_url: str, tmp_path: Path) -> None:
    with two_servers(postgres_url, tmp_path) as two, serving(postgres_url, tmp_path) as three:
        everybody = (*two, three)
        first = two[0].ask(lasting(3)).json()["id"]
        frozen = owner_of(postgres_url, everybody, first)
        freeze_outside_of_transactions(frozen, postgres_url)
        awake = [server for server in everybody if server is not frozen]
        second = awake[0].ask(lasting(4)).json()["id"]
        killed = owner_of(postgres_url, awake, second)
        (survivor,) = {*awake} - {killed}
        workers = killed.kill()
        ended = time.monotonic()

        assert eventually(lambda: sum(attempts(postgres_url).values()) > 2, _PATIENCE_S)
        assert time.monotonic() - ended < _LEASE_S + 5.0
        found, also_found = survivor.finished(first), survivor.finished(second)
        assert (found["state"], also_found["state"]) == ("done", "done")
        assert attempts(postgres_url) == {first: 2, second: 2}
        assert not any(alive(pid) for pid in workers)

        # Its worker went on, and hands over its answer as soon as somebody listens again.
        os.kill(frozen.process.pid, signal.SIGCONT)
        assert eventually(lambda: "not ours any more" in frozen.written(), _PATIENCE_S), frozen.tail()
        assert survivor.search(first) == frozen.search(first) == found
        assert frozen.ask(SMALL, wait=60).json()["status"] == "optimal"
        assert frozen.tracebacks() == []
        for search_id in (first, second):
            kinds = survivor.events(search_id)
            assert (kinds.count("running"), kinds.count("done"), kinds[-1]) == (2, 1, "done")
    assert wrong_with(postgres_url) == []


def attempts(url: str) -> dict[str, int]:
    """How often each search was begun."""
    with connected(url) as connection:
        return {row.id: row.attempt for row in connection.execute(text("SELECT id, attempt FROM searches"))}


def freeze_outside_of_transactions(server: Server, url: str) -> None:
    """In the middle of one it would keep its locks, which is for PostgreSQL's own limit of a minute to end."""
    for _ in range(20):
        os.kill(server.process.pid, signal.SIGSTOP)
        time.sleep(0.2)
        if not count(url, "pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"):
            return
        os.kill(server.process.pid, signal.SIGCONT)
    pytest.fail("it is always in a transaction")
