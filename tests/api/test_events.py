"""``/v1/searches/{id}/events``: what happens, in order, from where one left off, to the end."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from tests.api.asking import UNKNOWN_ID, answered, lasting, problem
from tests.api.conftest import Live

Event = tuple[int, str, dict[str, Any]]


def _events(client: httpx.Client, search: str, last: int | None = None) -> list[Event]:
    """Until the server ends the stream."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with client.stream("GET", f"/v1/searches/{search}/events", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        blocks = "\n".join(response.iter_lines()).strip().split("\n\n")
    return [_read(block) for block in blocks if "event:" in block]


def _read(block: str) -> Event:
    fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
    return int(fields["id"]), fields["event"], json.loads(fields["data"])


def test_events_come_in_order_and_the_stream_ends_by_itself(client: httpx.Client, answer: dict[str, Any]) -> None:
    events = _events(client, answer["id"])

    assert [number for number, _, _ in events] == list(range(1, len(events) + 1))
    kinds = [kind for _, kind, _ in events]
    assert kinds[:2] == ["queued", "running"]
    assert kinds[-1] == "done"
    assert set(kinds[2:-1]) <= {"candidates", "relaxed", "incumbents", "listed"}
    assert events[-1][2] == {"status": "optimal"}


def test_whoever_comes_back_gets_what_was_missed(client: httpx.Client, answer: dict[str, Any]) -> None:
    events = _events(client, answer["id"])

    for last in (0, 1, len(events) - 1):
        assert _events(client, answer["id"], last) == events[last:]


def test_whoever_has_seen_all_of_a_search_that_is_over_need_not_come_back(
    client: httpx.Client, answer: dict[str, Any]
) -> None:
    events = _events(client, answer["id"])

    for last in (str(len(events)), str(len(events) + 5), str(2**31), "9" * 30):
        response = client.get(f"/v1/searches/{answer['id']}/events", headers={"Last-Event-ID": last})
        assert (response.status_code, response.content) == (204, b"")


def test_there_is_something_at_once(client: httpx.Client) -> None:
    search = client.post("/v1/searches", json=lasting()).json()["id"]

    with client.stream("GET", f"/v1/searches/{search}/events", headers={"Last-Event-ID": "9"}) as response:
        assert next(response.iter_lines()).startswith(":")
    client.post(f"/v1/searches/{search}/cancel").raise_for_status()


def test_events_are_told_while_they_happen(client: httpx.Client) -> None:
    search = client.post("/v1/searches", json=lasting()).json()["id"]
    told: list[str] = []

    with client.stream("GET", f"/v1/searches/{search}/events") as response:
        for line in response.iter_lines():
            if line.startswith("event: "):
                told.append(line.removeprefix("event: "))
                if told[-1] == "running":
                    client.post(f"/v1/searches/{search}/cancel").raise_for_status()

    assert told[:2] == ["queued", "running"]
    assert told[-1] == "cancelled"


def test_many_listen_to_one_search(live: Live, client: httpx.Client) -> None:
    search = answered(client)["id"]

    heard = [_events(live.client(live.key("read")[1]), search) for _ in range(3)]

    assert heard[0] == heard[1] == heard[2]


@pytest.mark.parametrize("last", ["-1", "x", "1.5", "", "1, 2", "\u0661"])
def test_what_is_no_number_of_an_event_counts_as_none(client: httpx.Client, answer: dict[str, Any], last: str) -> None:
    headers = httpx.Headers({"Last-Event-ID": last}, encoding="utf-8")

    with client.stream("GET", f"/v1/searches/{answer['id']}/events", headers=headers) as response:
        assert response.status_code == 200
        assert "id: 1" in list(response.iter_lines())


def test_a_search_that_is_not_there_is_told_before_the_stream(client: httpx.Client) -> None:
    problem(client.get(f"/v1/searches/{UNKNOWN_ID}/events"), 404, "not-found")


def test_head_does_not_wait_for_the_end(client: httpx.Client) -> None:
    search = client.post("/v1/searches", json=lasting()).json()["id"]
    started = time.monotonic()

    response = client.head(f"/v1/searches/{search}/events")

    assert (response.status_code, response.content) == (200, b"")
    assert time.monotonic() - started < 10
    client.post(f"/v1/searches/{search}/cancel").raise_for_status()
