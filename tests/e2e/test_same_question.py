"""Many clients with one new question: one search, one answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.audit import count, wrong_with
from tests.e2e.servers import MEDIUM, SMALL, serving

_CLIENTS = 50


def test_fifty_clients_with_one_question_cause_one_search(store_url: str, tmp_path: Path) -> None:
    with serving(store_url, tmp_path) as server, ThreadPoolExecutor(_CLIENTS) as clients:
        waiting = list(clients.map(lambda _: server.ask(SMALL, wait=60), range(_CLIENTS)))
        assert [answer.status_code for answer in waiting] == [200] * _CLIENTS
        assert len({answer.content for answer in waiting}) == 1
        hurried = list(clients.map(lambda _: server.ask(MEDIUM | {"top": 10}), range(_CLIENTS)))
        assert {answer.status_code for answer in hurried} == {202}
        assert len({answer.json()["id"] for answer in hurried}) == 1
        assert {answer.headers["Location"] for answer in hurried} == {f"/v1/searches/{hurried[0].json()['id']}"}
        assert server.finished(hurried[0].json()["id"])["state"] == "done"
    assert count(store_url, "searches") == 2
    assert count(store_url, "search_events WHERE kind = 'running'") == 2
    assert wrong_with(store_url) == []


def test_a_key_sent_by_many_at_once_is_carried_out_once(store_url: str, tmp_path: Path) -> None:
    with serving(store_url, tmp_path) as server, ThreadPoolExecutor(_CLIENTS) as clients:
        plan_id = server.ask(SMALL, wait=60).json()["plans"][0]["id"]
        body = {"plan_id": plan_id, "status": "ok", "step_time_s": 1.5, "job_id": "17"}
        sent = list(
            clients.map(
                lambda _: server.client.post("/v1/measurements", json=body, headers={"Idempotency-Key": "job-17"}),
                range(_CLIENTS),
            )
        )
        assert {answer.status_code for answer in sent} <= {201, 409}
        assert len({answer.json()["id"] for answer in sent if answer.status_code == 201}) == 1
        again = server.client.post("/v1/measurements", json=body, headers={"Idempotency-Key": "job-17"})
        assert again.status_code == 201
        assert again.headers["Idempotency-Replayed"] == "true"
    assert count(store_url, "measurements") == 1
