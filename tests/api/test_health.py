"""``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from api.app import create_app
from api.settings import Settings
from tests.api.asking import ask, lasting, problem, question
from tests.api.conftest import Live
from tests.processes import eventually

_SELF = "http://127.0.0.1"


def _samples(client: httpx.Client) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(response.text))
    assert all(family.documentation for family in families)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def _value(samples: dict[Any, float], name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


def test_alive_and_ready(live: Live) -> None:
    client = live.client()

    assert client.get("/healthz").json() == {"status": "alive"}
    ready = client.get("/readyz").json()
    assert (ready["status"], ready["database"]) == ("ready", live.store.backend)
    assert ready["revision"] == live.store.revision()


def test_not_ready_before_a_process_that_searches_has_started(tmp_path: Path) -> None:
    app = create_app(Settings(database_url=f"sqlite:///{tmp_path / 'planner.db'}", needs_keys=False))

    async def look() -> tuple[httpx.Response, str]:
        transport = httpx.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url=_SELF) as client:
            first, counted = await client.get("/readyz"), (await client.get("/metrics")).text
            assert (await client.get("/healthz")).status_code == 200
            async with asyncio.timeout(30):
                while (await client.get("/readyz")).status_code != 200:
                    await asyncio.sleep(0.05)
            return first, counted

    first, counted = asyncio.run(look())
    problem(first, 503, "not-ready")
    assert int(first.headers["retry-after"]) >= 1
    assert "planner_ready 0.0" in counted


def test_searches_are_counted_while_they_run_and_when_they_end(client: httpx.Client) -> None:
    before = _samples(client)
    path = f"/v1/searches/{client.post('/v1/searches', json=lasting()).json()['id']}"

    assert eventually(lambda: _value(_samples(client), "planner_searches_running") == 1, 30)
    client.post(f"{path}/cancel").raise_for_status()
    assert eventually(lambda: client.get(path).json()["state"] == "cancelled", 10)

    name = "planner_searches_ended_total"
    cancelled = _value(before, name, outcome="cancelled") + 1
    assert eventually(lambda: _value(_samples(client), name, outcome="cancelled") == cancelled, 10)
    assert eventually(lambda: _value(_samples(client), "planner_searches_running") == 0, 10)


def test_requests_are_counted_by_route(client: httpx.Client, answer: dict[str, Any]) -> None:
    before = _samples(client)

    client.get(f"/v1/searches/{answer['id']}")
    client.get("/v1/searches/x")
    client.get("/nope/of/any/kind")
    client.request("BREW", "/v1/searches")
    after = _samples(client)

    def more(method: str, route: str, status: str) -> float:
        labels = {"method": method, "route": route, "status": status}
        name = "planner_http_requests_total"
        return _value(after, name, **labels) - _value(before, name, **labels)

    assert more("GET", "/v1/searches/{search_id}", "200") == 1
    assert more("GET", "/v1/searches/{search_id}", "422") == 1
    assert more("GET", "other", "404") == 1
    assert more("other", "/v1/searches", "405") == 1
    timed = {"method": "GET", "route": "/v1/searches/{search_id}"}
    assert _value(after, "planner_http_request_seconds_count", **timed) >= 2
    assert not any(answer["id"] in str(labels) for _, labels in after)


def test_questions_are_counted_by_what_became_of_them(client: httpx.Client) -> None:
    before, asked = _samples(client), question()

    ask(client, asked)
    ask(client, asked)
    after = _samples(client)

    def more(outcome: str) -> float:
        name = "planner_questions_total"
        return _value(after, name, outcome=outcome) - _value(before, name, outcome=outcome)

    assert (more("new"), more("stored"), more("joined")) == (1, 1, 0)
    ended = [_value(samples, "planner_searches_ended_total", outcome="optimal") for samples in (before, after)]
    assert ended[1] - ended[0] == 1
    assert _value(after, "planner_ready") == 1
    assert _value(after, "planner_searches_waiting") == 0
