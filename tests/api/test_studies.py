"""Studies over the API: opened once, shown as workers leave them, stopped; nothing of a request is ever run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from db.records import Study
from planner.client.listening import messages
from tests.api.asking import pointers, problem
from tests.api.conftest import Live
from tests.api.studies_by_hand import Hand, opened, study_body


@pytest.fixture
def study(live: Live, client: httpx.Client, answer: dict[str, Any]) -> Hand:
    """An open study of the answer's plans."""
    hand = Hand(live, opened(client)["id"], [plan["id"] for plan in answer["plans"]])
    hand.prepared()
    return hand


def test_a_study_waits_for_a_worker(client: httpx.Client) -> None:
    asked = study_body(trials=4, max_minutes=30, steps=7, warm_up=2, seed=3)
    found = client.post("/v1/studies", json=asked).json()

    assert found["state"] == "preparing"
    told = {name: found[name] for name in ("name", "runner", "most_trials", "steps", "warm_up", "seed")}
    assert told == {
        "name": asked["name"],
        "runner": "command",
        "most_trials": 4,
        "steps": 7,
        "warm_up": 2,
        "seed": 3,
    }
    lasts = datetime.fromisoformat(found["deadline"]) - datetime.fromisoformat(found["created_at"])
    assert lasts == timedelta(minutes=30)
    assert (found["trials"], found["best"], found["candidates"]) == ([], None, 0)


def test_its_trials_stand_beside_what_was_predicted(client: httpx.Client, study: Hand, answer: dict[str, Any]) -> None:
    study.finished(study.begun(0), "out_of_memory", None)
    predicted = answer["plans"][1]["prediction"]["step_time_s"]
    study.finished(study.begun(1), "ok", 2.0 * predicted)
    study.begun(2)

    found = client.get(f"/v1/studies/{study.id}").json()

    assert [trial["outcome"] for trial in found["trials"]] == ["out_of_memory", "ok", None]
    assert found["trials"][0]["reason"] == "too big"
    assert found["trials"][1]["measured_over_predicted"] == pytest.approx(2.0)
    assert found["trials"][1]["plan"] == answer["plans"][1]["plan"]
    assert (found["best"], found["candidates"], found["state"]) == (1, 3, "open")


def test_the_same_body_has_the_same_tag_until_something_changes(client: httpx.Client, study: Hand) -> None:
    path = f"/v1/studies/{study.id}"
    tag = client.get(path).headers["etag"]
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304

    study.begun(0)

    assert client.get(path, headers={"If-None-Match": tag}).status_code == 200


def test_studies_are_listed_newest_first_by_state(client: httpx.Client) -> None:
    first, second = opened(client), opened(client)
    client.post(f"/v1/studies/{first['id']}/cancel")

    newest = client.get("/v1/studies", params={"limit": 1}).json()
    assert newest["items"][0]["name"] == second["name"]
    further = client.get("/v1/studies", params={"limit": 1, "cursor": newest["next"]}).json()
    assert further["items"][0]["id"] == first["id"]
    assert client.get("/v1/studies", params={"state": "stopped"}).json()["items"][0]["id"] == first["id"]


def test_a_study_is_opened_once_per_key(client: httpx.Client) -> None:
    body, key = study_body(), {"Idempotency-Key": uuid4().hex}
    first = client.post("/v1/studies", json=body, headers=key)
    again = client.post("/v1/studies", json=body, headers=key)

    assert again.status_code == 202
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"


def test_names_are_unique(client: httpx.Client) -> None:
    body = study_body()
    assert client.post("/v1/studies", json=body).status_code == 202
    assert pointers(client.post("/v1/studies", json=body)) == ["/name"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"runner": "ssh"}, "/runner"),
        ({"launch": "/etc/passwd"}, "/launch"),
        ({"command": ["sh"]}, "/command"),
        ({"trials": 0}, "/trials"),
        ({"trials": 1001}, "/trials"),
        ({"steps": 0}, "/steps"),
        ({"warm_up": -1}, "/warm_up"),
        ({"max_minutes": 0}, "/max_minutes"),
        ({"name": ""}, "/name"),
        ({"name": " "}, "/name"),
        ({"name": "a\u00a0b"}, "/name"),
        ({"name": "x" * 101}, "/name"),
        ({"layers": 10_000}, "/layers"),
        ({"model": "nothing"}, "/model"),
        ({"objective": "cost"}, "/objective"),
    ],
)
def test_what_is_unusable_is_named(client: httpx.Client, changes: dict[str, Any], pointer: str) -> None:
    response = client.post("/v1/studies", json=study_body(**changes))

    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]


def test_fewer_layers_are_another_model(client: httpx.Client) -> None:
    whole, reduced = study_body(), study_body(layers=4)
    reduced["seq_len"] = whole["seq_len"]
    scenarios = [client.post("/v1/studies", json=body).json()["scenario_id"] for body in (whole, reduced)]
    assert scenarios[0] != scenarios[1]


def test_cancelling_stops_what_is_to_come_and_waits_for_what_runs(client: httpx.Client, study: Hand) -> None:
    running = study.begun(0)
    path = f"/v1/studies/{study.id}/cancel"

    first = client.post(path)
    assert (first.status_code, first.json()["state"]) == (202, "stopped")
    study.finished(running, "ok", 1.0)
    again = client.post(path)

    assert (again.status_code, again.json()["best"]) == (200, 0)
    assert again.json()["ended_because"] == first.json()["ended_because"] != ""


def test_only_its_key_or_an_admins_may_cancel_it(live: Live, client: httpx.Client) -> None:
    path = f"/v1/studies/{opened(client)['id']}/cancel"

    problem(live.client(live.key("read")[1]).post(path), 403, "forbidden")
    problem(live.client(live.key("write")[1]).post(path), 403, "forbidden")
    assert live.client(live.key("admin")[1]).post(path).status_code == 200


def test_there_is_no_such_study(client: httpx.Client) -> None:
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
        problem(client.request(method, f"/v1/studies/{'0' * 32}{path}"), 404, "not-found")


def test_studies_of_earlier_versions_are_told_as_far_as_they_are_known(
    live: Live, client: httpx.Client, answer: dict[str, Any]
) -> None:
    old = Study(
        id=uuid4().hex,
        name=f"old {uuid4().hex}",
        scenario_id=answer["scenario"]["id"],
        search_id=answer["id"],
        created_by=None,
        created_at=datetime.now(UTC),
    )
    with live.store.writing() as repos:
        repos.studies.add(old)

    found = client.get(f"/v1/studies/{old.id}").json()

    assert (found["state"], found["steps"], found["seed"], found["trials"]) == ("done", None, None, [])
    assert client.get("/v1/studies", params={"limit": 1}).json()["items"][0]["id"] == old.id


def test_events_tell_what_changes_and_end_with_the_study(client: httpx.Client, study: Hand) -> None:
    study.finished(study.begun(0), "ok", 1.0)

    def go_on() -> None:
        study.finished(study.begun(1), "ok", 0.5)
        client.post(f"/v1/studies/{study.id}/cancel")

    found = []
    with client.stream("GET", f"/v1/studies/{study.id}/events") as response:
        for message in _heard(response):
            found.append((message[0], message[1].get("number", message[1].get("best"))))
            if message[0] == "study" and message[1]["best"] == 0:
                threading.Thread(target=go_on).start()

    assert found[:2] == [("trial", 0), ("study", 0)]
    assert ("trial", 1) in found[2:]
    assert found[-1] == ("stopped", 1)
    assert found.count(("trial", 0)) == 1
    over = client.get(f"/v1/studies/{study.id}/events", headers={"Last-Event-ID": "over"})
    assert over.status_code == 204


def _heard(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    assert response.status_code == 200
    for message in messages(response.iter_bytes()):
        yield message.kind, json.loads(message.data)
