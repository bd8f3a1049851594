"""``/v1/plans`` and ``/v1/predictions``: what was planned, and what is judged."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.api.asking import PLAIN, UNKNOWN_ID, answered, pointers, problem

Json = dict[str, Any]


def _item(answer: Json, **changes: Any) -> Json:
    return {"model": "llama-3-8b", "cluster": "dgx-h100", "plan": answer["plans"][0]["plan"] | changes}


def _judged(client: httpx.Client, *items: Json) -> list[Json]:
    response = client.post("/v1/predictions", json={"items": list(items)})
    assert response.status_code == 200, response.text
    results: list[Json] = response.json()["items"]
    assert len(results) == len(items)
    return results


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

    assert (found["same_scenario"], found["same_work"]) == (False, False)
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
        _item(answer) | {"model": "llama-3.1-70b", "plan": PLAIN},
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


def test_programs_are_told_whose_memory_is_short(client: httpx.Client) -> None:
    huge = {"model": "llama-3.1-405b", "cluster": "dgx-h100", "devices": 16, "framework": "deepspeed"}
    plan = {"zero_stage": 3, "offload": "parameters", "recompute": "full", "global_batch_size": 64, "seq_len": 8192}
    hosts, both, devices, fits = _judged(
        client,
        huge | {"plan": plan},
        huge | {"plan": plan | {"recompute": "none"}},
        huge | {"plan": plan | {"offload": "none"}},
        huge | {"model": "llama-3-8b", "plan": plan},
    )
    assert [found["short_of"] for found in (hosts, both, devices, fits)] == [
        ["host"],
        ["device", "host"],
        ["device"],
        [],
    ]
    assert [found["status"] for found in (hosts, both, devices, fits)] == [*["too_big"] * 3, "fits"]
    assert any("1353.8 more than the 2048.0" in warning for warning in hosts["warnings"])
    assert fits["warnings"] == []


def test_nothing_is_searched_for_a_plan_that_does_not_fit(client: httpx.Client) -> None:
    """What would fit instead, and why nothing does, takes a search of a third of a second for each of these."""
    plan = {"tp": 1, "pp": 1, "dp": 64, "micro_batch_size": 1, "global_batch_size": 64, "seq_len": 4096}
    item = {"model": "deepseek-v3", "cluster": "dgx-a100-40gb", "devices": 64, "plan": plan}
    started = time.monotonic()

    results = _judged(client, *[item] * 100)

    assert {result["status"] for result in results} == {"too_big"}
    assert time.monotonic() - started < 15


def test_a_plan_that_has_no_price_may_have_a_verdict(client: httpx.Client, answer: Json) -> None:
    """What hyper-connections keep is not modelled, so neither is what recomputing them saves."""
    own = {"recompute": "selective", "recompute_modules": ["mhc"]}
    long = {**PLAIN, **own, "seq_len": 6144}
    item = _item(answer) | {"framework_version": "0.17"}

    short, doubtful = _judged(client, *(item | {"plan": plan} for plan in (PLAIN | own, long)))

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
