"""Many clients with one new request at once: it is carried out once, and all get the same answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.audit import count, wrong_with
from tests.e2e.servers import MEDIUM, SMALL, Server, serving

_CLIENTS = 50


@pytest.fixture
def server(store_url: str, tmp_path: Path) -> Iterator[Server]:
    with serving(store_url, tmp_path) as started:
        yield started
    assert wrong_with(store_url) == []


def test_fifty_clients_with_one_request_cause_it_once(server: Server, store_url: str) -> None:
    with ThreadPoolExecutor(_CLIENTS) as clients:
        waiting = list(clients.map(lambda _: server.ask(SMALL, wait=60), range(_CLIENTS)))
        assert [answer.status_code for answer in waiting] == [200] * _CLIENTS
        assert len({answer.content for answer in waiting}) == 1

        hurried = list(clients.map(lambda _: server.ask(MEDIUM | {"top": 10}), range(_CLIENTS)))
        assert {answer.status_code for answer in hurried} == {202}
        (search_id,) = {answer.json()["id"] for answer in hurried}
        assert {answer.headers["Location"] for answer in hurried} == {f"/v1/searches/{search_id}"}
        assert count(store_url, "searches") == 2

        body = {"plan_id": waiting[0].json()["plans"][0]["id"], "status": "ok", "step_time_s": 1.5, "job_id": "17"}
        once = {"Idempotency-Key": "job-17"}
        sent = list(
            clients.map(lambda _: server.client.post("/v1/measurements", json=body, headers=once), range(_CLIENTS))
        )
        assert {answer.status_code for answer in sent} <= {201, 409}
        assert len({answer.json()["id"] for answer in sent if answer.status_code == 201}) == 1
        again = server.client.post("/v1/measurements", json=body, headers=once)
        assert (again.status_code, again.headers["Idempotency-Replayed"]) == (201, "true")
        assert count(store_url, "measurements") == 1

        assert server.finished(search_id)["state"] == "done"
        assert count(store_url, "search_events WHERE kind = 'running'") == 2
