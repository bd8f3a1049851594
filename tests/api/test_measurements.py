"""``/v1/measurements``: what became of plans, beside what was predicted of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.api.asking import PLAIN, UNKNOWN_ID, pointers, problem

Json = dict[str, Any]


def _measure(client: httpx.Client, plan: str, **fields: Any) -> Json:
    response = client.post("/v1/measurements", json={"plan_id": plan, **fields})
    assert response.status_code == 201, response.text
    assert response.headers["location"] == f"/v1/measurements/{response.json()['id']}"
    found: Json = response.json()
    assert client.get(response.headers["location"]).json() == found
    return found


def test_a_plan_that_was_priced_can_be_measured_against(client: httpx.Client) -> None:
    item = {"model": "llama-3-8b", "cluster": "dgx-h100", "plan": PLAIN | {"recompute": "full"}}
    (priced,) = client.post("/v1/predictions", json={"items": [item]}).raise_for_status().json()["items"]
    assert client.get(f"/v1/plans/{priced['plan_id']}").json()["plan"]["recompute"] == "full"
    predicted = priced["prediction"]["step_time_s"]

    measured = _measure(client, priced["plan_id"], step_time_s=1.1 * predicted, steps=50, job_id="job-1")

    assert measured["measured_over_predicted"] == pytest.approx(1.1)
    assert measured["predicted_step_time_s"] == predicted
    assert measured["inside_interval"] is True
    listed = client.get("/v1/measurements", params={"plan_id": priced["plan_id"]}).json()["items"]
    assert [item["id"] for item in listed] == [measured["id"]]


def test_a_throughput_means_a_step_time(client: httpx.Client, answer: Json) -> None:
    plan = answer["plans"][0]
    predicted = plan["prediction"]["tokens_per_s_per_device"]

    measured = _measure(client, plan["id"], tokens_per_s_per_device=predicted / 10)

    assert measured["step_time_s"] is None
    assert measured["measured_over_predicted"] == pytest.approx(10)
    assert measured["inside_interval"] is False


@pytest.mark.parametrize("status", ["out_of_memory", "failed"])
def test_runs_that_came_to_nothing_are_results_too(client: httpx.Client, answer: Json, status: str) -> None:
    fields = {
        "log_tail": "CUDA out of memory\n\u2028 ü \U0001f600",
        "environment": {"torch": "2.9", "deep": [{"a": None}]},
    }

    measured = _measure(client, answer["plans"][0]["id"], status=status, **fields)

    assert (measured["measured_over_predicted"], measured["inside_interval"]) == (None, None)
    assert {name: measured[name] for name in fields} == fields
    found = client.get("/v1/measurements", params={"status": status, "scenario_id": answer["scenario"]["id"]}).json()
    (listed,) = [item for item in found["items"] if item["id"] == measured["id"]]
    assert listed == {name: value for name, value in measured.items() if name not in fields}


def test_when_it_was_measured(client: httpx.Client, answer: Json) -> None:
    plan = answer["plans"][0]["id"]
    before = datetime.now(UTC)

    told = _measure(client, plan, status="failed", measured_at="2026-01-02T03:04:05.678+05:30")
    now = _measure(client, plan, status="failed")

    assert datetime.fromisoformat(told["measured_at"]) == datetime(2026, 1, 1, 21, 34, 5, 678_000, UTC)
    assert before <= datetime.fromisoformat(now["measured_at"]) <= datetime.now(UTC)


def test_measurements_of_a_job(client: httpx.Client, answer: Json) -> None:
    for plan in answer["plans"]:
        _measure(client, plan["id"], step_time_s=1.0, job_id="job of three")

    first = client.get("/v1/measurements", params={"job_id": "job of three", "limit": 2}).json()
    rest = client.get("/v1/measurements", params={"job_id": "job of three", "cursor": first["next"]}).json()

    found = [item["plan_id"] for item in first["items"] + rest["items"]]
    assert found == [plan["id"] for plan in reversed(answer["plans"])]
    assert rest["next"] is None


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"step_time_s": None}, ""),
        ({"step_time_s": 0}, "/step_time_s"),
        ({"step_time_s": 5e-324}, "/step_time_s"),
        ({"step_time_s": "1"}, "/step_time_s"),
        ({"step_time_s": True}, "/step_time_s"),
        ({"tokens_per_s_per_device": 5e-324}, "/tokens_per_s_per_device"),
        ({"status": "slow"}, "/status"),
        ({"steps": 0}, "/steps"),
        ({"peak_allocated_bytes": -1}, "/peak_allocated_bytes"),
        ({"peak_reserved_bytes": 2**60}, "/peak_reserved_bytes"),
        ({"job_id": ""}, "/job_id"),
        ({"environment": []}, "/environment"),
        ({"log_tail": "x" * 65_537}, "/log_tail"),
        ({"measured_at": "2026-01-01T00:00:00"}, "/measured_at"),
        ({"measured_at": "1999-12-31T00:00:00Z"}, "/measured_at"),
        ({"measured_at": "9999-12-31T23:59:59-23:00"}, "/measured_at"),
        ({"measured_at": "2999-12-31T23:59:59-01:00"}, "/measured_at"),
        ({"measured_at": "2000-01-01T00:30:00+01:00"}, "/measured_at"),
        ({"job_id": "a\nb"}, "/job_id"),
        ({"note": "\x1b[31m"}, "/note"),
        ({"measured_at": "soon"}, "/measured_at"),
        ({"measured_at": 1.0e9}, "/measured_at"),
        ({"plan_id": "x"}, "/plan_id"),
    ],
)
def test_measurements_that_are_none(client: httpx.Client, answer: Json, change: Json, pointer: str) -> None:
    body = {"plan_id": answer["plans"][0]["id"], "step_time_s": 1.0} | change

    assert pointers(client.post("/v1/measurements", json=body)) == [pointer]


def test_a_measurement_of_a_plan_that_is_not_there(client: httpx.Client) -> None:
    body = {"plan_id": UNKNOWN_ID, "step_time_s": 1.0}

    assert pointers(client.post("/v1/measurements", json=body), "unknown-plan") == ["/plan_id"]
    problem(client.get(f"/v1/measurements/{UNKNOWN_ID}"), 404, "not-found")
    assert client.get("/v1/measurements", params={"plan_id": UNKNOWN_ID}).json()["items"] == []
