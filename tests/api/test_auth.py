"""API keys: who may do what, and that no key is ever shown."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.api.asking import lasting, problem, question
from tests.api.conftest import Live
from tests.api.pages import BROWSER

_OPEN = ["/healthz", "/readyz", "/openapi.json"]
_READS = [
    "/v1/searches",
    "/v1/plans",
    "/v1/measurements",
    "/v1/models",
    "/v1/models/llama-3-8b",
    "/v1/clusters",
    "/v1/calibrations",
    "/metrics",
    "/searches",
]


def _basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anyone:{password}".encode()).decode()


def _refused(response: httpx.Response) -> None:
    problem(response, 401, "unauthorized")
    challenge = response.headers["www-authenticate"]
    assert "Bearer" in challenge
    assert "Basic realm=" in challenge


@pytest.mark.parametrize("path", _OPEN)
def test_what_needs_no_key(live: Live, path: str) -> None:
    assert live.client().get(path).status_code == 200


@pytest.mark.parametrize("path", _READS)
def test_what_needs_a_key(live: Live, answer: dict[str, Any], path: str) -> None:
    _, secret = live.key("read")
    client = live.client()

    _refused(client.get(path))
    for header in (
        "",
        "Bearer",
        "Bearer pk_of_nobody",
        f"Token {secret}",
        secret,
        f"Bearer {secret}x",
        f"Bearer {secret} {secret}",
        "Basic",
        "Basic %%%",
        "Basic " + base64.b64encode(b"\xff\xff").decode(),
        "Basic " + base64.b64encode(secret.encode()).decode(),
        _basic(""),
        _basic("pk_of_nobody"),
        "Bearer \xff\xfe",
    ):
        _refused(client.get(path, headers=[(b"Authorization", header.encode("latin-1"))]))
    for header in (f"Bearer {secret}", f"bearer  {secret}", _basic(secret)):
        assert client.get(path, headers={"Authorization": header}).status_code == 200


def test_things_need_a_key_before_it_is_told_whether_they_exist(live: Live, answer: dict[str, Any]) -> None:
    client = live.client()

    for path in (f"/v1/searches/{answer['id']}", f"/v1/searches/{'0' * 32}", f"/v1/searches/{answer['id']}/events"):
        _refused(client.get(path))
    _refused(client.post("/v1/searches", json=question()))
    _refused(client.post("/v1/searches", json={"nonsense": 1}))
    _refused(client.post(f"/v1/searches/{answer['id']}/cancel"))


def test_nothing_that_is_sent_is_read_without_a_key(live: Live) -> None:
    reader = live.client(live.key("read")[1])
    for path in ("/v1/searches", "/v1/predictions", "/v1/measurements"):
        sent = {"content": b"{oops", "headers": {"Content-Type": "application/json"}}
        _refused(live.client().post(path, **sent))
        _refused(live.client().post(f"{path}?nope=1", **sent))
        problem(reader.post(path, **sent), 403, "forbidden")


def test_a_reader_may_not_write(live: Live, answer: dict[str, Any]) -> None:
    reader = live.client(live.key("read")[1])

    assert reader.get(f"/v1/searches/{answer['id']}").json() == answer
    for response in (
        reader.post("/v1/searches", json=question()),
        reader.post("/v1/predictions", json={"items": [{"model": "x", "cluster": "x", "plan": {}}]}),
        reader.post("/v1/measurements", json={"plan_id": answer["plans"][0]["id"], "step_time_s": 1.0}),
        reader.post(f"/v1/searches/{answer['id']}/cancel"),
    ):
        assert "'write'" in problem(response, 403, "forbidden")["detail"]


def test_a_key_without_scopes_may_do_nothing(live: Live) -> None:
    problem(live.client(live.key()[1]).get("/v1/searches"), 403, "forbidden")


def test_only_the_one_who_asked_and_admins_may_cancel(live: Live) -> None:
    owner, other, admin = (live.client(live.key(scope)[1]) for scope in ("write", "write", "admin"))
    search = owner.post("/v1/searches", json=lasting()).json()["id"]

    problem(other.post(f"/v1/searches/{search}/cancel"), 403, "forbidden")
    for who, shown in ((owner, True), (admin, True), (other, False)):
        assert ("Cancel the search" in who.get(f"/searches/{search}", headers=BROWSER).text) == shown
    assert admin.post(f"/v1/searches/{search}/cancel").status_code in (200, 202)
    again = owner.post("/v1/searches", json=lasting()).json()["id"]
    assert owner.post(f"/v1/searches/{again}/cancel").status_code in (200, 202)


def test_a_key_that_was_revoked_is_refused_at_once(live: Live) -> None:
    key, secret = live.key("write")
    client = live.client(secret)
    assert client.get("/v1/searches").status_code == 200

    with live.store.writing() as repos:
        assert repos.api_keys.revoke(key.name, datetime.now(UTC))

    _refused(client.get("/v1/searches"))
    _refused(client.post("/v1/searches", json=question()))


def test_a_key_that_has_expired_is_refused(live: Live) -> None:
    valid, expired = live.key("read", expires_in=timedelta(minutes=5)), live.key("read", expires_in=timedelta(0))

    assert live.client(valid[1]).get("/v1/searches").status_code == 200
    _refused(live.client(expired[1]).get("/v1/searches"))


def test_the_last_use_of_a_key_is_noted(live: Live) -> None:
    key, secret = live.key("read")

    live.client(secret).get("/v1/searches").raise_for_status()

    with live.store.reading() as repos:
        (used,) = (stored.last_used_at for stored in repos.api_keys.list() if stored.id == key.id)
    assert used is not None
    assert datetime.now(UTC) - used < timedelta(minutes=1)


def test_no_key_is_shown_anywhere(live: Live, answer: dict[str, Any]) -> None:
    key, secret = live.key("write")
    client = live.client()
    bearer, basic = {"Authorization": f"Bearer {secret}"}, {"Authorization": _basic(secret)}
    headers = {**bearer, "X-Request-Id": "look-for-me"}

    responses = [
        client.get("/v1/searches", headers=headers),
        client.get("/v1/searches", headers=basic),
        client.get(f"/v1/plans?model={secret}", headers=bearer),
        client.get(f"/v1/searches?api_key={secret}", headers={"Authorization": f"Bearer {secret}x"}),
        client.post("/v1/searches", content=b"{", headers={**bearer, "Content-Type": "application/json"}),
        client.get("/metrics", headers=bearer),
        client.get("/searches", headers=basic),
    ]

    encoded = basic["Authorization"].removeprefix("Basic ")
    log = live.server.written()
    assert "look-for-me" in log
    assert key.name in log
    for text in (log, *(response.text for response in responses)):
        assert secret not in text
        assert encoded not in text
    for response in responses:
        assert secret not in str(response.headers)
