"""``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.api.asking import ask, question
from tests.api.conftest import Live


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
    assert _value(after, "planner_ready") == 1
    assert _value(after, "planner_searches_waiting") == 0
