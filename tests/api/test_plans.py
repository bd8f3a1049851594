"""``/v1/plans``, ``/v1/predictions`` and ``/v1/measurements``: what was planned, what is judged, what became of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.api.asking import UNKNOWN_ID, answered, pointers, problem

Json = dict[str, Any]

_PLAIN: Json = {
    "tp": 1,
    "pp": 1,
    "dp": 16,
    "zero_stage": 1,
    "micro_batch_size": 1,
    "global_batch_size": 64,
    "seq_len": 2048,
}


def _item(answer: Json, **changes: Any) -> Json:
    return {"model": "llama-3-8b", "cluster": "dgx-h100", "plan": answer["plans"][0]["plan"] | changes}


def _judged(client: httpx.Client, *items: Json) -> list[Json]:
    response = client.post("/v1/predictions", json={"items": list(items)})
    assert response.status_code == 200, response.text
    results: list[Json] = response.json()["items"]
    assert len(results) == len(items)
    return results


def _measure(client: httpx.Client, plan: str, **fields: Any) -> Json:
    response = client.post("/v1/measurements", json={"plan_id": plan, **fields})
    assert response.status_code == 201, response.text
    assert response.headers["location"] == f"/v1/measurements/{response.json()['id']}"
    found: Json = response.json()
    assert client.get(response.headers["location"]).json() == found
    return found


def test_a_plan_of_an_answer_is_there_by_its_id(client: httpx.Client, answer: Json) -> None:
    ranked = answer["plans"][1]

    plan = client.get(f"/v1/plans/{ranked['id']}").json()

    assert (plan["plan"], plan["prediction"]) == (ranked["plan"], ranked["prediction"])
    assert plan["scenario_id"] == answer["scenario"]["id"]
    assert plan["calibration_id"] == answer["search"]["calibration_id"]
    problem(client.get(f"/v1/plans/{UNKNOWN_ID}"), 404, "not-found")
    problem(client.get("/v1/plans/x"), 422, "invalid-input")


def test_plans_side_by_side(client: httpx.Client, answer: Json) -> None:
    best, second, third = (plan["id"] for plan in answer["plans"])

    found = client.get("/v1/plans/compare", params={"plan": [third, best, second]}).json()

    assert [plan["id"] for plan in found["plans"]] == [third, best, second]
    assert (found["fastest"], found["same_scenario"], found["same_calibration"]) == (best, True, True)
    times = [plan["prediction"]["step_time_s"] for plan in answer["plans"]]
    assert found["fastest_by"] == pytest.approx(1 - times[0] / times[1])
    summed = [sum(term["values"][place] for term in found["time_s"]) for place in range(3)]
    assert summed == pytest.approx([times[2], times[0], times[1]])
    assert found["axes"]
    assert all(len(difference["values"]) == 3 for difference in found["axes"])


def test_plans_of_different_work_are_not_of_the_same_scenario(client: httpx.Client, answer: Json) -> None:
    other = answered(client, global_batch_size=32)["plans"][0]["id"]

    found = client.get("/v1/plans/compare", params={"plan": [answer["plans"][0]["id"], other]}).json()

    assert found["same_scenario"] is False
    assert "global_batch_size" in [difference["field"] for difference in found["axes"]]


def test_what_can_not_be_compared(client: httpx.Client, answer: Json) -> None:
    best = answer["plans"][0]["id"]

    for plans in ([], [best], [best, best], [best] * 7, [best, "x"]):
        where = pointers(client.get("/v1/plans/compare", params={"plan": plans}))
        assert {pointer.partition(".")[0] for pointer in where} == {"plan"}
    problem(client.get("/v1/plans/compare", params={"plan": [best, UNKNOWN_ID]}), 404, "not-found")


def test_a_batch_of_plans_each_with_its_own_verdict(client: httpx.Client, answer: Json) -> None:
    best = answer["plans"][0]

    fits, too_big, illegal, unknown, no_plan, wrong = _judged(
        client,
        _item(answer),
        _item(answer) | {"model": "llama-3.1-70b", "plan": _PLAIN},
        _item(answer, tp=3),
        _item(answer) | {"model": "llama3-8b"},
        _item(answer) | {"plan": {}},
        _item(answer, tp="two"),
    )

    assert fits["status"] in ("fits", "at_risk")
    assert (fits["plan_id"], fits["prediction"]) == (best["id"], best["prediction"])
    assert too_big["status"] == "too_big"
    assert too_big["prediction"]["memory"]["peak_bytes"] > too_big["prediction"]["memory"]["usable_bytes"]
    assert illegal["status"] == "illegal"
    assert "heads_divisible_by_tp" in [violation["rule"] for violation in illegal["violations"]]
    assert "plan_id" not in illegal
    assert unknown["status"] is None
    assert unknown["problem"]["type"] == "unknown-name"
    assert [error["pointer"] for error in unknown["problem"]["errors"]] == ["/items/3/model"]
    assert no_plan["problem"]["type"] == "missing"
    assert [error["pointer"] for error in wrong["problem"]["errors"]] == ["/items/5/plan/tp"]


@pytest.mark.parametrize("count", [0, 101])
def test_a_batch_of_no_plans_or_too_many(client: httpx.Client, answer: Json, count: int) -> None:
    assert pointers(client.post("/v1/predictions", json={"items": [_item(answer)] * count})) == ["/items"]


def test_a_hundred_plans_at_once(client: httpx.Client, answer: Json) -> None:
    results = _judged(client, *[_item(answer)] * 100)

    assert {result["plan_id"] for result in results} == {answer["plans"][0]["id"]}


def test_nothing_is_searched_for_a_plan_that_does_not_fit(client: httpx.Client) -> None:
    """What would fit instead, and why nothing does, takes a search of a third of a second for each of these."""
    plan = {"tp": 1, "pp": 1, "dp": 64, "micro_batch_size": 1, "global_batch_size": 64, "seq_len": 4096}
    item = {"model": "deepseek-v3", "cluster": "dgx-a100-40gb", "devices": 64, "plan": plan}
    started = time.monotonic()

    results = _judged(client, *[item] * 100)

    assert {result["status"] for result in results} == {"too_big"}
    assert time.monotonic() - started < 15


def test_a_plan_that_has_no_price_may_have_a_verdict(client: httpx.Client, answer: Json) -> None:
    own = {"recompute": "selective", "recompute_modules": []}
    long = {**_PLAIN, **own, "seq_len": 8192}

    short, doubtful = _judged(client, *(_item(answer) | {"plan": plan} for plan in (_PLAIN | own, long)))

    assert short["status"] == "fits"
    assert doubtful["status"] == "unknown"
    for result in (short, doubtful):
        assert "prediction" not in result
        assert "plan_id" not in result


def test_whatever_stands_in_a_plan_it_is_judged(client: httpx.Client, answer: Json) -> None:
    values: list[Any] = [None, 0, -1, 2**62, 1e308, "x", [], {}, [[1]], 1.5, True]

    for field in (*answer["plans"][0]["plan"], "nope"):
        results = _judged(client, *(_item(answer, **{field: value}) for value in values))
        for value, result in zip(values, results, strict=True):
            if result["status"] is None:
                assert result["problem"]["errors"][0]["pointer"].startswith("/items/"), (field, value)


def test_a_plan_that_was_priced_can_be_measured_against(client: httpx.Client, answer: Json) -> None:
    (priced,) = _judged(client, _item(answer) | {"plan": _PLAIN | {"recompute": "full"}})
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
    assert measured["id"] in [item["id"] for item in found["items"]]


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
