"""``Idempotency-Key``: a request that is sent again is carried out once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi.responses import Response
from sqlalchemy import text, update

from api.auth import Principal
from api.idempotency import ABANDONED, KEPT, REPLAYED, Once
from api.problems import ProblemRaised
from api.schemas.requests import MeasurementBody
from costmodel.fingerprint import digest
from db.records import Measurement
from db.tables import IdempotencyKeyRow
from tests.api.asking import ask, lasting, pointers, problem, question
from tests.api.conftest import Live

_KEPT_HEADERS = ("location", "retry-after", "content-type")


def _key() -> str:
    return uuid4().hex


def _measurement(answer: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"plan_id": answer["plans"][0]["id"], "step_time_s": 1.0, "job_id": _key(), **changes}


def _same(first: httpx.Response, again: httpx.Response) -> None:
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert REPLAYED not in first.headers
    assert again.headers[REPLAYED] == "true"
    for name in _KEPT_HEADERS:
        assert again.headers.get(name) == first.headers.get(name), name


def test_a_measurement_is_made_once(client: httpx.Client, answer: dict[str, Any]) -> None:
    body, headers = _measurement(answer), {"Idempotency-Key": _key()}

    first = client.post("/v1/measurements", json=body, headers=headers)
    again = client.post("/v1/measurements", json=body, headers=headers)

    assert first.status_code == 201
    _same(first, again)
    assert len(client.get("/v1/measurements", params={"job_id": body["job_id"]}).json()["items"]) == 1


def test_a_search_is_answered_again_as_it_stands_then(client: httpx.Client) -> None:
    body, headers = lasting(), {"Idempotency-Key": _key()}

    first = client.post("/v1/searches", json=body, headers=headers)
    meanwhile = client.post("/v1/searches", json=body, headers={**headers, "Prefer": "wait=1"})
    client.post(f"/v1/searches/{first.json()['id']}/cancel").raise_for_status()
    again = client.post("/v1/searches", json=body, headers={**headers, "Prefer": "wait=30"})

    assert REPLAYED not in first.headers
    assert [response.status_code for response in (first, meanwhile, again)] == [202, 202, 200]
    assert meanwhile.headers["preference-applied"] == "wait=1"
    assert again.json()["state"] == "cancelled"
    for replayed in (meanwhile, again):
        assert replayed.json()["id"] == first.json()["id"]
        assert replayed.headers["location"] == first.headers["location"]
        assert replayed.headers[REPLAYED] == "true"


def test_a_key_of_a_search_keeps_no_copy_of_the_answer(live: Live, client: httpx.Client) -> None:
    key = _key()

    ask(client, question(), **{"Idempotency-Key": key}).raise_for_status()

    with live.store.reading() as repos:
        query = text("SELECT body FROM idempotency_keys WHERE key = :key")
        assert repos.connection.execute(query, {"key": key}).scalar_one() == ""


def test_an_answer_and_a_batch_are_given_again(client: httpx.Client, answer: dict[str, Any]) -> None:
    item = {"model": "llama-3-8b", "cluster": "dgx-h100", "plan": answer["plans"][0]["plan"]}
    for path, body in (("/v1/searches", question()), ("/v1/predictions", {"items": [item, item | {"model": "nope"}]})):
        headers = {"Idempotency-Key": _key(), "Prefer": "wait=60"}
        first = client.post(path, json=body, headers=headers)
        assert first.status_code == 200
        _same(first, client.post(path, json=body, headers=headers))


def test_a_key_stands_for_one_body_and_one_path(client: httpx.Client, answer: dict[str, Any]) -> None:
    body, headers = _measurement(answer), {"Idempotency-Key": _key()}
    client.post("/v1/measurements", json=body, headers=headers).raise_for_status()

    for path, other in (("/v1/measurements", body | {"steps": 3}), ("/v1/searches", question())):
        problem(client.post(path, json=other, headers=headers), 422, "idempotency-key-reused")


def test_the_same_body_in_another_order_is_the_same(client: httpx.Client, answer: dict[str, Any]) -> None:
    body, headers = _measurement(answer), {"Idempotency-Key": _key()}
    first = client.post("/v1/measurements", json=body, headers=headers)

    again = client.post("/v1/measurements", json=dict(reversed(body.items())), headers=headers)

    _same(first, again)


def test_what_is_not_sent_is_not_the_same_as_its_default(client: httpx.Client, answer: dict[str, Any]) -> None:
    """A plan may say itself what a request has a default for."""
    item = {"model": "llama-3-8b", "cluster": "dgx-h100", "plan": answer["plans"][0]["plan"] | {"precision": "fp8"}}
    headers = {"Idempotency-Key": _key()}
    client.post("/v1/predictions", json={"items": [item]}, headers=headers).raise_for_status()

    other = client.post("/v1/predictions", json={"items": [item | {"precision": "bf16"}]}, headers=headers)

    problem(other, 422, "idempotency-key-reused")


def test_a_request_that_was_refused_does_not_use_the_key_up(client: httpx.Client, answer: dict[str, Any]) -> None:
    headers = {"Idempotency-Key": _key()}

    assert pointers(client.post("/v1/searches", json=question(model="nope"), headers=headers), "unknown-name")
    assert pointers(client.post("/v1/searches", json=question(devices=0), headers=headers))
    unknown = _measurement(answer, plan_id="0" * 32)
    assert pointers(client.post("/v1/measurements", json=unknown, headers=headers), "unknown-plan")

    assert client.post("/v1/measurements", json=_measurement(answer), headers=headers).status_code == 201


def test_keys_belong_to_whoever_sends_them(live: Live, client: httpx.Client, answer: dict[str, Any]) -> None:
    body, headers = _measurement(answer), {"Idempotency-Key": _key()}
    other = live.client(live.key("write")[1])

    first = client.post("/v1/measurements", json=body, headers=headers)
    own = other.post("/v1/measurements", json=body | {"steps": 3}, headers=headers)

    assert (first.status_code, own.status_code) == (201, 201)
    assert first.json()["id"] != own.json()["id"]


def test_a_measurement_and_its_key_are_kept_together(live: Live, answer: dict[str, Any]) -> None:
    """Whoever took so long that another request has the key leaves nothing behind."""
    body, key = MeasurementBody.model_validate(_measurement(answer)), _key()
    principal = Principal(id=live.key("write")[0].id, scopes=frozenset())
    late, taking_over = (Once(live.store, principal, key, "POST /v1/measurements", body) for _ in range(2))
    assert late.claim() is None
    _grow_older(live, key)
    assert taking_over.claim() is None

    record = _record(body)

    def measure() -> None:
        with late.or_forgotten(), live.store.writing() as repos:
            repos.measurements.add(record)
            late.complete(repos, Response("{}", 201))

    with pytest.raises(ProblemRaised, match="in progress"):
        measure()

    with live.store.reading() as repos:
        assert repos.measurements.get(record.id) is None
    taking_over.keep(Response("{}", 201))


@pytest.mark.parametrize(("age", "status"), [(ABANDONED / 2, 409), (ABANDONED * 1.5, 201)])
def test_a_request_whose_server_died_is_taken_over_after_a_while(
    live: Live, answer: dict[str, Any], age: timedelta, status: int
) -> None:
    principal, secret = live.key("write")
    body, key = _measurement(answer), _key()
    _claim(live, principal.id, key, body, age)

    response = live.client(secret).post("/v1/measurements", json=body, headers={"Idempotency-Key": key})

    assert response.status_code == status


def test_a_key_may_be_used_for_something_else_after_a_day(live: Live, answer: dict[str, Any]) -> None:
    principal, secret = live.key("write")
    key = _key()
    _claim(live, principal.id, key, _measurement(answer), KEPT + timedelta(minutes=1))

    response = live.client(secret).post("/v1/measurements", json=_measurement(answer), headers={"Idempotency-Key": key})

    assert response.status_code == 201


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "ü", "\x7f"])
def test_what_is_no_key(client: httpx.Client, answer: dict[str, Any], key: str) -> None:
    headers = httpx.Headers({"Idempotency-Key": key}, encoding="utf-8")

    assert pointers(client.post("/v1/measurements", json=_measurement(answer), headers=headers)) == ["Idempotency-Key"]


def _record(body: MeasurementBody) -> Measurement:
    told = body.model_dump() | {"measured_at": datetime.now(UTC)}
    return Measurement(**told, id=_key(), created_by=None, created_at=datetime.now(UTC))


def _grow_older(live: Live, key: str) -> None:
    """So old that whoever holds the key must have died."""
    with live.store.writing() as repos:
        older = update(IdempotencyKeyRow).where(IdempotencyKeyRow.key == key)
        repos.connection.execute(older.values(created_at=datetime.now(UTC) - 2 * ABANDONED))


def _claim(live: Live, principal: str, key: str, body: dict[str, Any], age: timedelta) -> None:
    """What a server leaves that dies in the middle of a request."""
    then = datetime.now(UTC) - age
    sent = digest(MeasurementBody.model_validate(body).model_dump(mode="json", exclude_unset=True))
    with live.store.writing() as repos:
        claimed = repos.idempotency.claim(
            principal, key, "POST /v1/measurements", sent, "dead", then, then - ABANDONED, then - KEPT
        )
    assert claimed.outcome == "started"
