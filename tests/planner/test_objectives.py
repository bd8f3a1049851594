"""Objectives and limits that a question may have beside the shortest step: deadlines, tolerances, ranges of devices."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.errors import InvalidInput
from planner.answering.batches import sensible_batches
from planner.answering.whole_answer import whole_answer
from planner.search.request import SearchRequest
from planner.search.solve import Search
from tests.scenarios import scenario_of
from tests.searches import request_of

SMALL = scenario_of("llama-3.2-1b", "dgx-h100", 32, 32, 4096)


def every_family(request: SearchRequest) -> list[Any]:
    """All different plans of a space, by step time."""
    outcome = Search(request).run()
    assert outcome.proven
    assert len(outcome.best) < request.top
    return outcome.best


def test_the_longest_step_is_a_limit_on_every_plan() -> None:
    plans = every_family(request_of(SMALL, top=1000))
    limit = plans[len(plans) // 3].step_time_s * 1.0001
    within = [plan for plan in plans if plan.step_time_s <= limit]
    outcome = Search(request_of(SMALL, top=1000, max_step_time_s=limit)).run()
    assert outcome.proven
    assert [plan.family for plan in outcome.best] == [plan.family for plan in within]


def test_fewest_devices_that_meet_a_deadline() -> None:
    plans = every_family(request_of(SMALL, min_devices=1, top=1000))
    for share in (0.1, 0.5, 0.9):
        limit = plans[int(share * (len(plans) - 1))].step_time_s * 1.0001
        fitting = [plan for plan in plans if plan.step_time_s <= limit]
        fewest = min(plan.devices_used for plan in fitting)
        fastest = min(plan.step_time_s for plan in fitting if plan.devices_used == fewest)
        answer = whole_answer(request_of(SMALL, objective="fewest_devices", max_step_time_s=limit, top=1))
        assert answer["status"] == "optimal"
        assert answer["best"] == fewest
        best = answer["plans"][0]
        assert best["plan"]["devices_used"] == fewest
        assert best["prediction"]["step_time_s"] == pytest.approx(fastest)


def test_a_deadline_that_nothing_meets_is_the_conflict_with_the_fastest_plans_time() -> None:
    fastest = Search(request_of(SMALL, top=1)).run().best[0].step_time_s
    answer = whole_answer(request_of(SMALL, max_step_time_s=fastest / 2))
    assert answer["status"] == "infeasible"
    (conflict,) = answer["infeasibility"]["conflict"]
    assert conflict["rule"] == "max_step_time"
    assert f"{fastest:.4g} s" in conflict["reason"]


def test_where_nothing_fits_a_deadline_is_not_to_blame() -> None:
    large = scenario_of("llama-3.1-405b", "dgx-h100", 16, 16, 4096)
    conflict = whole_answer(request_of(large, max_step_time_s=0.001))["infeasibility"]["conflict"]
    assert "max_step_time" not in {part["rule"] for part in conflict}


def test_a_range_of_devices_is_at_least_and_at_most() -> None:
    by_range = whole_answer(request_of(SMALL, min_devices=8, objective="cost", price_per_device_hour=2.0))
    by_share = whole_answer(request_of(SMALL, min_used=0.25, objective="cost", price_per_device_hour=2.0))
    assert by_range["plans"] == by_share["plans"]
    for least in (0, 33):
        with pytest.raises(InvalidInput, match=r"1\.\.32"):
            request_of(SMALL, min_devices=least)


def test_tokens_cost_what_the_devices_in_use_cost() -> None:
    answer = whole_answer(request_of(SMALL, objective="cost", price_per_device_hour=2.0, min_used=0.25))
    best = answer["plans"][0]
    tokens = SMALL.workload.global_batch_size * SMALL.workload.seq_len
    assert answer["cost_per_1e9_tokens"] == pytest.approx(answer["best"] / tokens * 1e9)
    assert answer["best"] == pytest.approx(
        2.0 / 3600 * best["plan"]["devices_used"] * best["prediction"]["step_time_s"]
    )


# -- another batch -----------------------------------------------------------------------------------------------------

ODD = scenario_of("llama-3.2-1b", "dgx-h100", 7, 6, 4096)


def test_batches_are_those_that_the_devices_divide_best() -> None:
    assert sensible_batches(request_of(ODD, batch_tolerance=0.2))[:2] == [6, 7]
    assert sensible_batches(request_of(ODD, batch_tolerance=0.1)) == [6]
    many = scenario_of("llama-3.1-8b", "dgx-h100", 488, 1024, 8192)
    searched = sensible_batches(request_of(many, batch_tolerance=0.1))
    assert searched[0] == 1024
    assert 976 in searched  # 2 x 488
    assert all(1024 * 0.9 <= size <= 1024 * 1.1 for size in searched)


def test_the_best_over_batches_is_the_best_of_each_batchs_own_per_sequence() -> None:
    request = request_of(ODD, batch_tolerance=0.4, top=12)
    answer = whole_answer(request)
    assert answer["status"] == "optimal"
    singles = []
    for size in answer["batches"]["searched"]:
        scenario = scenario_of("llama-3.2-1b", "dgx-h100", 7, size, 4096)
        for entry in whole_answer(request_of(scenario, top=100))["plans"]:
            plan = entry["plan"]
            family = tuple(plan[axis] for axis in ("tp", "cp", "pp", "ep", "etp", "dp", "micro_batch_size", "schedule"))
            singles.append((entry["prediction"]["step_time_s"] / size, family))
    best: dict[tuple[Any, ...], float] = {}
    for value, family in sorted(singles):
        best.setdefault(family, value)
    expected = sorted(best.values())[:12]
    found = [e["prediction"]["step_time_s"] / e["plan"]["global_batch_size"] for e in answer["plans"]]
    assert found == pytest.approx(expected)
    assert answer["best"] == answer["bound"] == pytest.approx(expected[0])
    assert answer["batches"]["per"] == "sequence"
    assert [entry["rank"] for entry in answer["plans"]] == list(range(1, len(answer["plans"]) + 1))


def test_another_batch_is_said_to_change_the_training() -> None:
    answer = whole_answer(request_of(ODD, batch_tolerance=0.2, top=1))
    assert answer["plans"][0]["plan"]["global_batch_size"] == 7
    assert any("global_batch_size 7 changes the training: 6" in line for line in answer["warnings"])
    same = whole_answer(request_of(ODD, top=1))
    assert "batches" not in same
    assert not any("global_batch_size" in line for line in same["warnings"])


def test_a_longer_step_is_allowed_by_as_much_as_the_batch_is_larger() -> None:
    alone = whole_answer(request_of(ODD, batch_tolerance=0.2, top=1))["plans"][0]
    per_sequence = alone["prediction"]["step_time_s"] / alone["plan"]["global_batch_size"]
    just = request_of(ODD, batch_tolerance=0.2, top=1, max_step_time_s=6 * per_sequence * 1.0001)
    assert whole_answer(just)["plans"][0]["plan"]["global_batch_size"] == 7
    never = request_of(ODD, batch_tolerance=0.2, top=1, max_step_time_s=6 * per_sequence * 0.9999)
    assert whole_answer(never)["status"] == "infeasible"


@pytest.mark.parametrize(
    "how",
    [
        {"batch_tolerance": -0.1},
        {"batch_tolerance": 1.0},
        {"max_step_time_s": 0.0},
        {"max_step_time_s": float("inf")},
        {"shortlist": 0.0},
        {"shortlist": 1.0},
    ],
)
def test_limits_that_can_not_be_meant_are_refused(how: dict[str, float]) -> None:
    with pytest.raises(InvalidInput) as caught:
        request_of(SMALL, **how)
    assert caught.value.field.replace("-", "_") in (*how, "max_step_time")


def test_a_front_compares_plans_of_one_batch() -> None:
    with pytest.raises(InvalidInput, match="one batch"):
        request_of(SMALL, batch_tolerance=0.1, pareto=True)
