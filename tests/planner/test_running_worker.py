"""``planner worker`` as a process: what it does when it is asked to end, and what it leaves when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from db.records import Search
from db.store import Store
from planner import service
from planner.search.request import SearchRequest
from tests.processes import alive, children, eventually
from tests.running_jobs import long_request
from tests.scenarios import scenario_of
from tests.searches import request_of

MANY_S = 30.0


@contextmanager
def started(url: str | None, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "planner.cli.main", "worker", *options]
    environment = os.environ | {"PLANNER_DATABASE_URL": url or ""}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(store: Store, request: SearchRequest) -> str:
    return service.ask(store, request, now=datetime.now(UTC)).search.id


def search_of(store: Store, search_id: str) -> Search:
    with store.reading() as repos:
        found = repos.searches.get(search_id)
    assert found is not None
    return found


def told(store: Store, search_id: str, kind: str) -> bool:
    with store.reading() as repos:
        return kind in [event.kind for event in repos.events.after(search_id, 0)]


def test_a_worker_answers_and_ends_when_its_group_is_told_to(postgres_url: str) -> None:
    with Store.open(postgres_url) as store, started(postgres_url, "--slots", "1") as worker:
        search_id = ask(store, request_of(scenario_of("llama-3.1-8b", "dgx-h100", 16, 32, 4096)))
        assert eventually(lambda: search_of(store, search_id).state == "done", MANY_S)
        searching = children(worker.pid)
        assert len(searching) == 1
        os.killpg(worker.pid, signal.SIGTERM)
        output, errors = worker.communicate(timeout=MANY_S)
        assert not any(map(alive, searching))
    assert worker.returncode == 0
    assert output == ""
    assert "Traceback" not in errors
    assert f'"search_id": "{search_id}"' in errors


def test_a_worker_that_is_asked_twice_puts_its_search_back_at_once(postgres_url: str) -> None:
    with Store.open(postgres_url) as store, started(postgres_url, "--slots", "1") as worker:
        search_id = ask(store, long_request())
        assert eventually(lambda: told(store, search_id, "relaxed"), MANY_S)
        searching = children(worker.pid)
        os.killpg(worker.pid, signal.SIGINT)
        # It says nothing when it begins to wait; a second signal that came too early would be the first one still.
        assert not eventually(lambda: worker.poll() is not None, 0.3)
        os.killpg(worker.pid, signal.SIGINT)
        _, errors = worker.communicate(timeout=MANY_S)
        assert not any(map(alive, searching))
        assert search_of(store, search_id).state == "queued"
    assert worker.returncode == 0
    assert "Traceback" not in errors


def test_a_killed_worker_leaves_no_process_and_others_can_take_its_search(postgres_url: str) -> None:
    with Store.open(postgres_url) as store, started(postgres_url, "--slots", "2") as worker:
        search_id = ask(store, long_request())
        assert eventually(lambda: told(store, search_id, "relaxed"), MANY_S)
        searching = children(worker.pid)
        assert len(searching) == 2
        worker.kill()
        worker.wait()
        assert eventually(lambda: not any(map(alive, searching)), 3.0)
        lost = search_of(store, search_id)
        assert (lost.state, lost.attempt) == ("running", 1)
        later = datetime.now(UTC) + timedelta(seconds=15)
        with store.writing() as repos:
            taken = repos.searches.claim("another", later, later + timedelta(seconds=10), 3)
        assert taken is not None
        assert (taken.id, taken.attempt) == (search_id, 2)


def test_a_worker_refuses_sqlite(sqlite_url: str) -> None:
    with started(sqlite_url) as worker:
        output, errors = worker.communicate(timeout=MANY_S)
    assert worker.returncode == 2
    assert output == ""
    assert "several processes need PostgreSQL" in errors
    assert len(errors.splitlines()) == 1
