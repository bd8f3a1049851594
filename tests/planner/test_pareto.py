"""The Pareto front against every device count and every level of free memory searched on its own."""

from __future__ import annotations

import pytest

from costmodel.checker import check_plan
from costmodel.spec.plan import Plan
from planner.answering.pareto import HEADROOM_LEVELS, Point, undominated
from planner.answering.whole_answer import whole_answer
from planner.search.priced import Priced
from planner.search.request import SearchRequest
from planner.search.solve import Search
from tests.scenarios import scenario_of
from tests.searches import request_of

CASES = {
    "dense": ("llama-3.2-1b", "dgx-h100", 16, 16, 4096),
    "tight": ("llama-3.1-8b", "dgx-a100-40gb", 16, 8, 8192),
    "experts": ("deepseek-v2-lite", "dgx-h100", 8, 8, 4096),
}


def fastest(request: SearchRequest, devices: int, free_bytes: int) -> list[Priced]:
    """The fastest plan on exactly so many devices that leaves so much free, proven; none where none does."""
    scenario = request.scenario.model_copy(update={"min_free_bytes": free_bytes})
    outcome = Search(request_of(scenario, [f"devices_used={devices}"], min_used=request.min_used, top=1)).run()
    assert outcome.proven
    return outcome.best


def by_brute_force(request: SearchRequest) -> set[tuple[float, int, int]]:
    """(step time, devices, level) of the front, rounded: the fastest plan of each device count at each level."""
    scenario = request.scenario
    usable, capacity = scenario.usable_bytes, scenario.cluster.accelerator.memory_bytes
    found: list[tuple[float, int, int]] = []
    for devices in range(request.least_devices, scenario.devices + 1):
        best: list[Priced] = []
        for level in range(HEADROOM_LEVELS):
            free = capacity - usable * (HEADROOM_LEVELS - level) // HEADROOM_LEVELS
            # The best of what leaves less free is the best here too where it leaves as much as this.
            if not best or best[0].peak_bytes > capacity - free:
                best = fastest(request, devices, free)
                if not best:
                    break
            found += [(plan.step_time_s, devices, level) for plan in best]
    return {
        (float(f"{t:.9e}"), d, level)
        for t, d, level in found
        if not any(
            t2 <= t * (1 + 1e-9) and d2 <= d and l2 >= level and (t2 < t * (1 - 1e-9) or d2 < d or l2 > level)
            for t2, d2, l2 in found
        )
    }


@pytest.mark.parametrize("name", list(CASES))
def test_the_front_is_that_of_every_device_count_and_level(name: str) -> None:
    request = request_of(scenario_of(*CASES[name]), min_used=0.5, pareto=True, top=3, max_seconds=600)
    answer = whole_answer(request)
    usable = request.scenario.usable_bytes
    assert answer["pareto_proven"]
    front = {
        (float(f"{p['step_time_s']:.9e}"), p["devices_used"], HEADROOM_LEVELS * p["free_bytes"] // usable)
        for p in answer["pareto"]
    }
    assert front == by_brute_force(request)
    assert len(front) > 3
    assert answer["pareto"][0]["plan"] == answer["plans"][0]["plan"]
    for point in answer["pareto"]:
        assert check_plan(Plan.model_validate(point["plan"]), request.scenario) == ()
        assert point["prediction"]["memory"]["usable_bytes"] == usable
        assert point["free_bytes"] == usable - point["prediction"]["memory"]["peak_bytes"] >= 0


def test_a_deadline_leaves_a_part_of_the_front_and_says_so() -> None:
    request = request_of(scenario_of(*CASES["dense"]), min_used=0.5, pareto=True, max_seconds=0.05)
    answer = whole_answer(request)
    assert not answer["pareto_proven"]


def test_cost_is_that_of_the_devices_in_use() -> None:
    scenario = scenario_of(*CASES["dense"])
    answer = whole_answer(request_of(scenario, min_used=0.5, pareto=True, price_per_device_hour=3.6))
    for point in answer["pareto"]:
        assert point["cost_per_step"] == pytest.approx(point["devices_used"] * point["step_time_s"] / 1000)
    unpriced = scenario.model_copy(
        update={"cluster": scenario.cluster.model_copy(update={"price_per_device_hour": None})}
    )
    assert {p["cost_per_step"] for p in whole_answer(request_of(unpriced, pareto=True))["pareto"]} == {None}


def test_what_is_as_good_in_all_and_better_in_one_beats() -> None:
    def point(seconds: float, devices: int, level: int) -> Point:
        return Point(step_time_s=seconds, devices=devices, level=level, entry={"id": f"{seconds}-{devices}-{level}"})

    fast, small, roomy = point(1.0, 16, 0), point(2.0, 8, 0), point(3.0, 16, 5)
    slower, fuller, same = point(2.5, 8, 0), point(2.0, 16, 0), point(1.0, 16, 0)
    assert undominated([slower, roomy, fuller, small, fast, same]) == [same, small, roomy]
