"""``/v1/searches``: asked, answered, answered again from the store, cancelled."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from costmodel.fingerprint import scenario_id
from db import records
from planner.question import Question
from planner.resolving import request_of
from planner.stored.questions import new_search
from planner.stored.records import calibration_record, scenario_record
from tests.api.asking import UNKNOWN_ID, answered, ask, infeasible, lasting, pointers, problem, question
from tests.api.conftest import Live
from tests.processes import eventually


def test_a_new_question_is_accepted_and_says_where_its_answer_will_be(client: httpx.Client) -> None:
    asked = question()

    accepted = client.post("/v1/searches", json=asked)

    assert accepted.status_code == 202
    search = accepted.json()
    assert search["state"] in ("queued", "running")
    assert accepted.headers["location"] == f"/v1/searches/{search['id']}"
    assert int(accepted.headers["retry-after"]) >= 1
    assert "status" not in search
    location = accepted.headers["location"]
    assert eventually(lambda: client.get(location).json()["state"] == "done", 30)
    answer = client.get(location).json()
    assert answer["status"] == "optimal"
    assert [plan["rank"] for plan in answer["plans"]] == [1, 2, 3]
    assert answer["best"] == answer["plans"][0]["prediction"]["step_time_s"]
    assert answer["scenario"]["seq_len"] == asked["seq_len"]


def test_prefer_wait_gets_the_answer_in_one_call(client: httpx.Client) -> None:
    response = ask(client, question())

    assert response.status_code == 200
    assert response.headers["preference-applied"] == "wait=60"
    assert "retry-after" not in response.headers
    assert response.json()["state"] == "done"


@pytest.mark.parametrize("prefer", ["wait=0", "respond-async", "wait=soon", "wait=-1", "return=minimal"])
def test_a_preference_that_is_no_wait_is_answered_at_once(client: httpx.Client, prefer: str) -> None:
    started = time.monotonic()

    response = client.post("/v1/searches", json=lasting(), headers={"Prefer": prefer})

    assert response.status_code == 202
    assert time.monotonic() - started < 5
    client.post(f"/v1/searches/{response.json()['id']}/cancel").raise_for_status()


def test_a_wait_that_is_too_short_ends_with_202(client: httpx.Client) -> None:
    response = client.post("/v1/searches", json=lasting(), headers={"Prefer": "respond-async, wait=1"})

    assert response.status_code == 202
    assert response.headers["preference-applied"] == "wait=1"
    client.post(f"/v1/searches/{response.json()['id']}/cancel").raise_for_status()


def test_the_same_question_is_answered_from_the_store(client: httpx.Client) -> None:
    asked = question()
    first = ask(client, asked)

    again = client.post("/v1/searches", json=asked)

    assert again.status_code == 200
    assert again.content == first.content
    assert again.headers["location"] == first.headers["location"]


def test_a_proven_answer_holds_for_any_seed_and_deadline(client: httpx.Client) -> None:
    asked = question()
    first = ask(client, asked).json()
    assert first["proven_top_k"]

    again = client.post("/v1/searches", json=asked | {"seed": 7, "max_seconds": 1.5})

    assert again.status_code == 200
    assert again.json()["id"] == first["id"]


def test_pins_in_another_order_and_spelling_are_the_same_question(client: httpx.Client) -> None:
    asked = question(pins=["tp=1,2", "pp=1"])
    first = ask(client, asked).json()

    again = client.post("/v1/searches", json=asked | {"pins": ["pp=1", "tp=2,1"]})

    assert again.json()["id"] == first["id"]


def test_what_is_asked_differently_is_another_question(client: httpx.Client) -> None:
    asked = question()
    first = ask(client, asked).json()

    for change in (
        {"top": 2},
        {"devices": 8},
        {"pins": ["tp=1"]},
        {"min_used": 1.0},
        {"precision": "fp16"},
        {"gradient_dtype": "bf16"},
    ):
        assert ask(client, asked | change).json()["id"] != first["id"]


def test_the_gradients_that_a_framework_usually_has_are_the_same_question_said_or_not(client: httpx.Client) -> None:
    asked = question()
    first = ask(client, asked).json()
    assert first["scenario"]["gradient_dtype"] == "fp32"
    assert ask(client, asked | {"gradient_dtype": "fp32"}).json()["id"] == first["id"]
    narrow = ask(client, asked | {"gradient_dtype": "bf16"}).json()
    assert {narrow["scenario"]["gradient_dtype"], narrow["plans"][0]["plan"]["gradient_dtype"]} == {"bf16"}


def test_a_recipe_that_the_framework_lacks_is_a_problem_of_its_field(client: httpx.Client) -> None:
    response = client.post("/v1/searches", json=question(precision="bf16-pure"))
    assert pointers(response) == ["/precision"]
    assert "trains in bf16" in response.text


@pytest.mark.parametrize("precision", ["mxfp8", "nvfp4"])
def test_a_recipe_that_the_devices_lack_is_an_answer_with_its_rule(client: httpx.Client, precision: str) -> None:
    answer = answered(client, precision=precision)
    assert answer["status"] == "infeasible"
    assert set(answer["eliminated"]) >= {"precision_in_hardware"}
    assert any(precision in entry["reason"] for entry in answer["infeasibility"]["conflict"])


def test_a_model_of_the_catalog_may_be_sent_as_an_object(client: httpx.Client) -> None:
    model = client.get("/v1/models/llama-3-8b").json()["spec"]
    cluster = client.get("/v1/clusters/dgx-h100").json()["spec"]
    asked = question()
    by_name = ask(client, asked).json()

    by_value = ask(client, asked | {"model": model, "cluster": cluster}).json()

    assert by_value["id"] == by_name["id"]


def test_an_answer_under_another_calibration_is_named_and_not_given(live: Live, client: httpx.Client) -> None:
    asked = question()
    request = request_of(Question(**asked))
    scenario, calibration = request.scenario, calibration_record(request.scenario.calibration)
    other = replace(calibration, id=uuid4().hex, name="older")
    search = replace(new_search(request, None), key=uuid4().hex, calibration_id=other.id)
    before = datetime.now(UTC) - timedelta(days=1)
    with live.store.writing() as repos:
        repos.scenarios.put(scenario_record(scenario), before)
        repos.calibrations.put(other, before)
        stored = repos.searches.store_answer(search, _found_nothing(scenario_id(scenario)), before)

    answer = ask(client, asked).json()

    assert answer["id"] != stored.id
    assert answer["search"]["calibration_id"] == calibration.id
    (earlier,) = answer["earlier"]
    assert (earlier["id"], earlier["calibration"], earlier["calibration_id"]) == (stored.id, "older", other.id)
    listed = {item["id"]: item["current"] for item in client.get("/v1/calibrations").json()["items"]}
    assert (listed[calibration.id], listed[other.id]) == (True, False)


def test_a_search_is_no_plan_and_a_plan_no_search(client: httpx.Client, answer: dict[str, Any]) -> None:
    search, plan = answer["id"], answer["plans"][0]["id"]
    for _ in range(2):
        assert client.get(f"/v1/searches/{search}").json() == answer
        assert client.get(f"/v1/plans/{plan}").json()["id"] == plan
        problem(client.get(f"/v1/plans/{search}"), 404, "not-found")
        problem(client.get(f"/v1/searches/{plan}"), 404, "not-found")


def test_nothing_fits_is_an_answer_with_its_reasons(client: httpx.Client) -> None:
    asked = infeasible()
    response = ask(client, asked)

    assert response.status_code == 200
    answer = response.json()
    assert (answer["state"], answer["status"], answer["plans"], answer["best"]) == ("done", "infeasible", [], None)
    conflict = answer["infeasibility"]["conflict"][0]
    assert conflict["rule"] == "memory"
    assert "GiB" in conflict["reason"]
    assert client.post("/v1/searches", json=asked | {"seed": 3}).json()["id"] == answer["id"]


def test_the_fields_of_a_relaxation_ask_again_and_fit(client: httpx.Client) -> None:
    asked = infeasible(cluster="dgx-a100-80gb", devices=16, seq_len=4096)
    relaxations = ask(client, asked).json()["infeasibility"]["relaxations"]
    assert relaxations
    again = ask(client, asked | relaxations[0]["fields"]).json()
    assert again["plans"]
    best = again["plans"][0]["prediction"]["step_time_s"]
    assert best <= relaxations[0]["prediction"]["step_time_s"] * (1 + 1e-9)


def test_pins_that_contradict_each_other_are_answered(client: httpx.Client) -> None:
    response = ask(client, question(pins=["tp=2"], forbids=["tp=2"]))
    assert response.status_code == 200, response.text
    answer = response.json()
    assert (answer["state"], answer["status"]) == ("done", "infeasible")
    assert [part["rule"] for part in answer["infeasibility"]["conflict"]] == ["pin tp=2", "forbid tp=2"]
    assert answer["infeasibility"]["relaxations"][0]["leave_out"] == ["--pin tp=2"]


def test_a_search_that_failed_says_why(live: Live, client: httpx.Client) -> None:
    new = replace(new_search(request_of(Question(**question())), None), cost_model_version="0.0.1+deadbeef")
    request = request_of(Question(**question()))
    why = {"type": "search-failed", "title": "The search failed", "detail": "the worker ran out of memory"}
    now = datetime.now(UTC)
    with live.store.writing() as repos:
        repos.scenarios.put(scenario_record(request.scenario), now)
        repos.calibrations.put(calibration_record(request.scenario.calibration), now)
        search, _ = repos.searches.add(replace(new, scenario_id=scenario_id(request.scenario)), now)
        claimed = repos.searches.claim_this(search.id, "tester", now, now + timedelta(minutes=1))
        assert claimed is not None
        assert repos.searches.fail(search.id, "tester", claimed.attempt, why, now)

    found = client.get(f"/v1/searches/{search.id}").json()

    assert found["state"] == "failed"
    assert found["problem"] == why
    assert "plans" not in found


def test_a_running_search_is_cancelled(client: httpx.Client) -> None:
    search = client.post("/v1/searches", json=lasting()).json()
    path = f"/v1/searches/{search['id']}"
    assert eventually(lambda: client.get(path).json()["state"] == "running", 30)

    cancelled = client.post(f"{path}/cancel")

    assert cancelled.status_code in (200, 202)
    assert cancelled.headers["location"] == path
    assert eventually(lambda: client.get(path).json()["state"] == "cancelled", 10)
    assert client.post(f"{path}/cancel").status_code == 200
    assert client.get(path).json()["state"] == "cancelled"


def test_a_waiting_search_is_cancelled_at_once_and_may_be_asked_again(client: httpx.Client) -> None:
    running = client.post("/v1/searches", json=lasting()).json()["id"]
    asked = question()
    waiting = client.post("/v1/searches", json=asked).json()["id"]

    cancelled = client.post(f"/v1/searches/{waiting}/cancel")
    client.post(f"/v1/searches/{running}/cancel").raise_for_status()

    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert cancelled.json()["finished_at"] is not None
    again = ask(client, asked).json()
    assert again["id"] != waiting
    assert again["state"] == "done"


def test_an_answer_stays_when_its_search_is_cancelled(client: httpx.Client) -> None:
    answer = answered(client)

    cancelled = client.post(f"/v1/searches/{answer['id']}/cancel")

    assert cancelled.status_code == 200
    assert cancelled.json() == answer


@pytest.mark.parametrize("path", ["/v1/searches/{}", "/v1/searches/{}/events"])
def test_a_search_that_is_not_there(client: httpx.Client, path: str) -> None:
    problem(client.get(path.format(UNKNOWN_ID)), 404, "not-found")
    problem(client.post(f"/v1/searches/{UNKNOWN_ID}/cancel"), 404, "not-found")
    for other in ("x", UNKNOWN_ID.replace("0", "F"), "%00", "%ff", "1' OR '1'='1"):
        problem(client.get(path.format(other)), 422, "invalid-input")


def _found_nothing(scenario: str) -> records.SearchResult:
    details: dict[str, Any] = {"scenario": {"id": scenario}}
    return records.SearchResult(
        status="infeasible",
        best=None,
        bound=None,
        gap=None,
        proven_top_k=False,
        plans_within=0,
        elapsed_s=0.1,
        details=details,
        plans=[],
    )


def test_an_answer_that_a_deadline_cut_can_be_asked_for_anew(client: httpx.Client) -> None:
    asked = lasting(max_seconds=0.5, top=1000)
    first = ask(client, asked).json()
    assert first["state"] == "done"
    assert not first["proven_top_k"]
    assert ask(client, asked).json()["id"] == first["id"]
    anew = ask(client, asked, **{"Cache-Control": "no-cache"}).json()
    assert anew["id"] != first["id"]

    proven = answered(client)
    again = {"model": "llama-3-8b", "cluster": "dgx-h100", "devices": 16, "global_batch_size": 64, "top": 3}
    again["seq_len"] = proven["scenario"]["seq_len"]
    assert ask(client, again, **{"Cache-Control": "no-cache"}).json()["id"] == proven["id"]
