"""kill -9, in the middle of a search and of writes: what was told stays told, and nothing stays half done."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.audit import count, wrong_with
from tests.e2e.servers import MEDIUM, SMALL, Server, lasting, serving
from tests.processes import alive, eventually

pytestmark = pytest.mark.slow

_ROUNDS = 3


def test_a_killed_servers_search_is_finished_by_the_next_server(sqlite_url: str, tmp_path: Path) -> None:
    with serving(sqlite_url, tmp_path) as first:
        asked = first.ask(MEDIUM)
        assert asked.status_code == 202
        search_id, port = asked.json()["id"], first.port
        # Told by the worker: the search itself is on its way.
        assert eventually(lambda: count(sqlite_url, "search_events WHERE kind = 'relaxed'") == 1, 30.0)
        workers = first.kill()
    assert len(workers) == 1
    # On the same port at once: no worker has kept it.
    with serving(sqlite_url, tmp_path, port=port) as second:
        assert eventually(lambda: not any(alive(pid) for pid in workers), 3.0)
        found = second.finished(search_id)
        assert (found["state"], found["status"], len(found["plans"])) == ("done", "optimal", 50)
        # Asked again it is the same search, answered.
        again = second.ask(MEDIUM)
        assert (again.status_code, again.json()["id"]) == (200, search_id)
        kinds = second.events(search_id)
    assert (kinds[0], kinds.count("running"), kinds[-1]) == ("queued", 2, "done")
    assert count(sqlite_url, "searches") == 1
    assert wrong_with(sqlite_url) == []


def test_what_was_acknowledged_before_a_kill_is_there_after_it(sqlite_url: str, tmp_path: Path) -> None:
    chance = random.Random(20_261)
    written: dict[str, dict[str, Any]] = {}
    asked: dict[str, dict[str, Any]] = {}
    plan_id, port = "", 0
    for round_ in range(_ROUNDS):
        with serving(sqlite_url, tmp_path, port=port) as server:
            port = server.port
            plan_id = plan_id or server.ask(SMALL, wait=60).json()["plans"][0]["id"]
            clients = (_measures(server, plan_id, round_, written), _asks(server, round_, asked))
            threads = [threading.Thread(target=client) for client in clients]
            before = len(written), len(asked)
            for thread in threads:
                thread.start()
            assert eventually(lambda seen=before: len(written) > seen[0] and len(asked) > seen[1], 30.0)
            time.sleep(chance.uniform(0.0, 0.8))  # any moment will do: that is what is tried here
            server.kill()
            for thread in threads:
                thread.join(30.0)
        assert wrong_with(sqlite_url) == []
    with serving(sqlite_url, tmp_path, port=port) as server:
        for measurement_id, body in written.items():
            found = server.client.get(f"/v1/measurements/{measurement_id}").json()
            assert {name: found[name] for name in body} == body
        for search_id, question in asked.items():
            found = server.finished(search_id)
            assert found["state"] == "done"
            assert found["question"]["seed"] == question["seed"]
            assert found["scenario"]["devices"] == question["devices"]
    # A kill may come between the commit and the response: one more than was acknowledged, for each client and round.
    assert 0 <= count(sqlite_url, "measurements") - len(written) <= _ROUNDS
    assert 0 <= count(sqlite_url, "searches") - (len(asked) + 1) <= _ROUNDS
    assert wrong_with(sqlite_url) == []


def _measures(server: Server, plan_id: str, round_: int, written: dict[str, dict[str, Any]]) -> Callable[[], None]:
    def loop() -> None:
        for number in range(2_000):
            body = {"plan_id": plan_id, "status": "ok", "step_time_s": 1.0 + number / 64, "note": f"{round_}"}
            try:
                response = server.client.post("/v1/measurements", json=body)
            except httpx.TransportError:
                return
            assert response.status_code == 201, response.text
            written[response.json()["id"]] = body

    return loop


def _asks(server: Server, round_: int, asked: dict[str, dict[str, Any]]) -> Callable[[], None]:
    def loop() -> None:
        for number in range(200):
            question = SMALL | {"devices": 8 * (1 + number % 8), "seed": 1_000 * round_ + number, "top": 3}
            question |= {"pins": [f"tp={1 + number % 2}"], "min_used": 0.5 + number / 1_000 + round_ / 10}
            try:
                response = server.ask(question, wait=1)
            except httpx.TransportError:
                return
            assert response.status_code in (200, 202), response.text
            asked[response.json()["id"]] = question

    return loop


def test_a_killed_worker_fails_its_search_with_a_reason_and_nothing_else(sqlite_url: str, tmp_path: Path) -> None:
    with serving(sqlite_url, tmp_path) as server:
        search_id = server.ask(lasting(60)).json()["id"]
        assert eventually(lambda: count(sqlite_url, "search_events WHERE kind = 'candidates'") == 1, 30.0)
        (worker,) = server.workers
        os.kill(worker, signal.SIGKILL)
        found = server.finished(search_id, 10.0)
        assert (found["state"], found["problem"]["type"]) == ("failed", "worker-lost")
        assert "signal 9" in found["problem"]["detail"]
        assert server.client.get("/healthz").status_code == 200
        answered = server.ask(SMALL, wait=60)
        assert (answered.status_code, answered.json()["status"]) == (200, "optimal")
        assert worker not in server.workers
        # The question can be asked again: a failure is no answer.
        again = server.ask(lasting(60))
        assert again.json()["id"] != search_id
        assert server.client.post(f"/v1/searches/{again.json()['id']}/cancel").status_code in (200, 202)
        assert server.finished(again.json()["id"], 10.0)["state"] == "cancelled"
    assert wrong_with(sqlite_url) == []
