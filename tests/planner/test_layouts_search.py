"""Whole searches over small models against every plan with every layout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from costmodel.checker import check_plan
from costmodel.facts import Facts
from costmodel.rules import legal_mask, rules_for
from costmodel.scenario import Scenario
from costmodel.spec.plan import SCHEDULES
from costmodel.stages import Layout
from costmodel.table import PlanTable
from planner.check.price import price
from planner.search.answer import answer_of
from planner.search.layouts.freedom import has_choice
from planner.search.request import SearchRequest
from planner.search.solve import Search
from tests.planner.layouts import Layouts, model_of
from tests.planner.test_search import FAMILY, Row, inner_of, meshes_of
from tests.scenarios import plan_row, scenario_of
from tests.searches import request_of

# (kind of model, layers, devices, batch): memory is cut to shares of the least that any plan needs.
CASES = {
    "dense": ("dense", 7, 4, 8),
    "experts": ("experts", 5, 4, 4),
    "first-dense": ("first-dense", 5, 4, 4),
    "predicting": ("predicting", 4, 4, 4),
}


@dataclass(frozen=True, kw_only=True)
class Every:
    """Of every legal plan without its layers: all its layouts."""

    scenario: Scenario
    plans: list[tuple[Row, Layouts]]
    recipes: dict[tuple[int, ...], list[Row]]

    def best(self, usable: float) -> list[tuple[float, tuple[int, ...]]]:
        """(step time, family) of the best of each family, best first."""
        families: dict[tuple[int, ...], float] = {}
        for row, layouts in self.plans:
            if row["vpp"] > 1:
                step = layouts.least(usable, self.recipes.get(but_layout(row), []))
            else:
                found = layouts.best(usable)
                step = None if found is None else found[0]
            family = tuple(row[axis] for axis in FAMILY)
            if step is not None:
                families[family] = min(step, families.get(family, np.inf))
        return sorted((step, family) for family, step in families.items())


def scenario_named(name: str) -> Scenario:
    kind, layers, devices, batch = CASES[name]
    return scenario_of(model_of(kind, layers), "dgx-h100", devices, batch, 4096)


PINS = ("tp=1,2", "cp=1", "zero_stage=1,3", "micro_batch_size=1,2", "vpp=1..2")


@lru_cache(maxsize=4)
def every(name: str) -> Every:
    scenario = scenario_named(name)
    rules = [rule for rule in rules_for(scenario.framework) if "layout" not in rule.axes]
    plans: list[tuple[Row, Layouts]] = []
    recipes: dict[tuple[int, ...], list[Row]] = {}
    for mesh in meshes_of(scenario, -(-9 * scenario.devices // 10)):
        if mesh["tp"] > 2 or mesh["cp"] > 1 or mesh["micro_batch_size"] > 2 or mesh["pp"] > scenario.model.num_layers:
            continue
        for row in inner_of(scenario, mesh, ()):
            if row["vpp"] > 2 or row["zero_stage"] not in (1, 3):
                continue
            if row["vpp"] > 1 and legal_mask(scenario, PlanTable.of_rows([row])).all():
                recipes.setdefault(but_layout(row), []).append(row)
            if row["layout"] != Layout.EVEN:
                continue
            columns = {axis: np.array(value) for axis, value in whole(row).items()}
            if all(bool(np.all(rule.holds(scenario, columns))) for rule in rules):
                plans.append((row, Layouts.of(scenario, row, partly=row["recompute"] == 2)))
    return Every(scenario=scenario, plans=plans, recipes=recipes)


def but_layout(row: Row) -> tuple[int, ...]:
    return tuple(row[axis] for axis in sorted(row) if axis != "layout")


def whole(row: Row) -> Row:
    return PlanTable.of_rows([row]).row(0)


@pytest.mark.parametrize("share", [0.9, 1.05, 1.5, 4.0])
@pytest.mark.parametrize("name", list(CASES))
def test_no_plan_with_any_layout_is_better(name: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = every(name)
    least = min(float(layouts.peak_bytes.min()) for _, layouts in oracle.plans)
    usable = int(share * least)
    monkeypatch.setattr(Scenario, "usable_bytes", property(lambda _: usable))
    request = request_of(oracle.scenario, PINS, top=8)
    outcome = Search(request).run()
    expected = oracle.best(usable)
    assert outcome.proven
    assert [plan.step_time_s for plan in outcome.best] == pytest.approx([step for step, _ in expected[:8]], rel=1e-9)
    assert bool(outcome.best) == (share > 1.0)
    if not outcome.best:
        return
    assert outcome.bound == outcome.best[0].objective
    by_family = {family: step for step, family in expected}
    for found in outcome.best:
        assert found.step_time_s == pytest.approx(by_family[found.family], rel=1e-9)
        assert found.peak_bytes <= usable
    check_as_given(request, outcome)


def check_as_given(request: SearchRequest, outcome: Any) -> None:
    """Every plan of the answer, read back, is legal and has the price that ``check`` gives it."""
    scenario = request.scenario
    answer = answer_of(request, Facts.of(scenario), outcome)
    for entry, found in zip(answer["plans"], outcome.best, strict=True):
        plan = found.plan(scenario)
        assert entry["plan"] == plan.model_dump(mode="json")
        assert check_plan(plan, scenario) == ()
        priced = price(scenario, plan).prediction
        assert priced is not None
        assert priced["step_time_s"] == pytest.approx(entry["prediction"]["step_time_s"], rel=1e-9)
        assert priced["memory"]["peak_bytes"] == pytest.approx(entry["prediction"]["memory"]["peak_bytes"], rel=1e-9)


def test_some_layers_run_again_where_that_is_faster_than_all() -> None:
    scenario = scenario_of("llama-3.1-70b", "dgx-h100", 488, 488, 8192)
    outcome = Search(SearchRequest(scenario=scenario, top=3)).run()
    assert outcome.proven
    best = outcome.best[0]
    assert best.recomputed is not None
    assert 0 < sum(best.recomputed) < scenario.model.num_layers
    check_as_given(SearchRequest(scenario=scenario, top=3), outcome)
    # Pinned, full recompute means all layers.
    pinned = Search(request_of(scenario, ("recompute=full",), top=1)).run()
    assert pinned.best[0].recomputed is None
    assert pinned.best[0].step_time_s > best.step_time_s


def test_a_schedule_that_is_not_known_to_be_free_keeps_to_recipes() -> None:
    """``dualpipe`` lays every stage on two devices: nobody says what its framework takes."""
    code = SCHEDULES.index("dualpipe")
    table = PlanTable.of_rows([plan_row(64, pp=4, dp=1, schedule=code)])
    assert not has_choice(SearchRequest(scenario=scenario_of()), table).any()
