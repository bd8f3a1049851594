"""Searches of generated problems against every plan of their spaces, every layout among them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costmodel.checker import check_plan
from costmodel.facts import Facts
from costmodel.spec.plan import Plan
from planner.search.answer import answer_of
from planner.search.priced import ROUNDING
from planner.search.solve import Search
from tests.planner.oracle import problem, space_of

PROBLEMS = 70


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_the_search_finds_the_best_of_all_plans(seed: int) -> None:
    asked = problem(seed)
    space = space_of(asked)
    installed = asked.scenario.cluster.accelerator.memory_bytes
    usable = min(int(asked.share * space.least_bytes), installed) if len(space.families) else installed
    request = asked.request(usable)
    outcome = Search(request).run()
    expected = space.best(asked.objective, request.scenario.usable_bytes)
    assert outcome.proven, asked.words
    assert bool(outcome.best) == bool(expected), asked.words
    if not expected:
        return
    assert outcome.bound == outcome.best[0].objective
    found = [
        (plan.devices_used, plan.step_time_s)
        if asked.objective == "fewest_devices"
        else (plan.objective, plan.devices_used)
        for plan in outcome.best
    ]
    wanted = list(expected.values())[: request.top]
    assert [first for first, _ in found] == pytest.approx([first for first, _ in wanted], rel=ROUNDING), asked.words
    # Ties by fewer devices: the same set up to what equal prices leave open.
    assert [second for _, second in found] == pytest.approx([second for _, second in wanted], rel=ROUNDING), asked.words
    for plan, key in zip(outcome.best, found, strict=True):
        assert key == pytest.approx(expected[plan.family], rel=ROUNDING)
    assert [plan.order for plan in outcome.best] == sorted(plan.order for plan in outcome.best)
    for entry in answer_of(request, Facts.of(request.scenario), outcome)["plans"]:
        assert check_plan(Plan.model_validate(entry["plan"]), request.scenario) == ()
        assert entry["prediction"]["memory"]["peak_bytes"] <= request.scenario.usable_bytes


@pytest.mark.parametrize("seed", range(0, PROBLEMS, 8))
def test_more_memory_or_fewer_wishes_never_make_the_best_worse(seed: int) -> None:
    asked = problem(seed)
    space = space_of(asked)
    if not space.families:
        return

    installed = asked.scenario.cluster.accelerator.memory_bytes

    def usable(share: float) -> int:
        return min(int(share * space.least_bytes), installed)

    def best(share: float, *, wishes: bool = True) -> float:
        wish_less = replace(asked, pins=tuple(pin for pin in asked.pins if ".." in pin), forbids=())
        request = (asked if wishes else wish_less).request(usable(share), top=1)
        found = Search(request).run().best
        return found[0].objective if found else float("inf")

    shares = (0.99, 1.001, 1.3, 3.0)
    objectives = [best(share) for share in shares]
    assert objectives == sorted(objectives, reverse=True)
    fits = [bool(space.best(asked.objective, usable(share))) for share in shares]
    assert [objective < float("inf") for objective in objectives] == fits
    assert best(1.3, wishes=False) <= objectives[2]
