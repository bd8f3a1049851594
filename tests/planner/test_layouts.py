"""The best layers of every device, and of them those that run again, against every way to lay out a small model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.checker import check_plan
from costmodel.facts import Facts
from costmodel.plan_costs import PlanCosts
from costmodel.plan_rows import plan_of, stages_of_plan
from costmodel.predict import predict
from costmodel.scenario import Scenario
from costmodel.spec.plan import SCHEDULES
from costmodel.table import PlanTable, stage_table
from planner.search.layouts.arrange import arranged
from planner.search.layouts.exact import least_step_times
from planner.search.request import SearchRequest
from tests.planner.layouts import Layouts, model_of
from tests.scenarios import plan_row, scenario_of

# (kind of model, layers, pp, vpp).
SHAPES = [
    ("dense", 7, 3, 1),
    ("dense", 8, 4, 1),
    ("dense", 8, 3, 2),
    ("dense", 10, 2, 2),
    ("dense", 6, 1, 1),
    ("experts", 7, 3, 1),
    ("experts", 7, 2, 3),
    ("first-dense", 8, 4, 1),
    ("three-dense", 9, 3, 1),
    ("three-dense", 5, 4, 1),
    ("alternating", 8, 3, 1),
    ("predicting", 7, 3, 1),
]


def small(kind: str, layers: int, pp: int, **how: Any) -> tuple[Scenario, SearchRequest]:
    scenario = scenario_of(model_of(kind, layers), "dgx-h100", 4 * pp, 96, 4096, **how)
    return scenario, SearchRequest(scenario=scenario)


def row_of(pp: int, vpp: int, recompute: int, **axes: int) -> dict[str, int]:
    return plan_row(96, tp=2, pp=pp, dp=2, vpp=vpp, recompute=recompute, micro_batch_size=2, **axes)


@pytest.mark.parametrize("recompute", [0, 1, 2])
@pytest.mark.parametrize(("kind", "layers", "pp", "vpp"), SHAPES)
def test_no_layout_is_better(kind: str, layers: int, pp: int, vpp: int, recompute: int) -> None:
    scenario, request = small(kind, layers, pp)
    row = row_of(pp, vpp, recompute)
    every = Layouts.of(scenario, row, partly=recompute == 2)
    table, facts = PlanTable.of_rows([row]), Facts.of(scenario)
    needs = np.sort(every.peak_bytes)
    verdicts = set()
    for usable in (needs[0] * 0.999, *np.quantile(needs, [0.0, 0.1, 0.3, 0.6]) * 1.0001, needs[-1] * 1.01):
        best = every.best(float(usable))
        verdicts.add(best is None)
        for limit in (np.inf, 1.1 * best[0] if best else 1.0):
            found = least_step_times(request, facts, table, np.array([limit]), float(usable))
            assert found[0] == (pytest.approx(best[0], rel=1e-9) if best else np.inf)
        if best:
            again, peak, plan = laid_out(request, row, found, float(usable))
            assert (again, peak) == (best[1], pytest.approx(best[2], rel=1e-9))
            assert check_plan(plan, scenario) == ()
            # Beyond what it takes there is none below it.
            lower = least_step_times(request, facts, table, found * (1.0 - 1e-6), float(usable))
            assert np.isinf(lower[0])
    assert verdicts == {True, False}


def laid_out(request: SearchRequest, row: dict[str, int], step: np.ndarray, usable: float) -> tuple[int, float, Any]:
    """(layers that run again, peak, plan) of the layout that is chosen, priced as if no chunk waited for another."""
    scenario, table = request.scenario, PlanTable.of_rows([row])
    (layout,) = arranged(request, Facts.of(scenario), table, step, usable)
    plan = plan_of(scenario, row, layout.chunks, layout.recomputed)
    priced = predict(Facts.of(scenario), table, stages_of_plan(scenario, plan).with_chunks(None))
    assert priced.step_time_s[0] == pytest.approx(float(step[0]), rel=1e-9)
    return sum(layout.recomputed), float(priced.peak_bytes[0]), plan


@pytest.mark.parametrize(("layers", "vpp"), [(9, 2), (8, 3)])
def test_leading_dense_layers_fall_into_the_first_chunks_in_the_best_way(layers: int, vpp: int) -> None:
    """Chunks are even but where dense layers end: the best is at least as good as any even one."""
    scenario, request = small("three-dense", layers, 2)
    for recompute in (0, 2):
        row = row_of(2, vpp, recompute)
        every = Layouts.of(scenario, row, partly=recompute == 2)
        for share in (0.2, 0.6, 1.0):
            usable = float(np.quantile(every.peak_bytes, share)) * 1.0001
            best = every.best(usable)
            assert best is not None
            found = least_step_times(request, Facts.of(scenario), PlanTable.of_rows([row]), np.array([np.inf]), usable)
            assert found[0] <= best[0] * (1.0 + 1e-9)
            _, peak, plan = laid_out(request, row, found, usable)
            assert peak <= usable
            assert check_plan(plan, scenario) == ()


def test_in_a_v_the_first_device_has_both_ends() -> None:
    scenario = scenario_of(model_of("dense", 8), "dgx-h100", 12, 96, 4096)
    scenario = scenario.model_copy(update={"framework": load_framework("torchtitan")})
    request, facts = SearchRequest(scenario=scenario), Facts.of(scenario)
    for name in ("zb_v", "dualpipe_v"):
        row = row_of(3, 2, 0, schedule=SCHEDULES.index(name))
        every = Layouts.of(scenario, row, partly=False)
        best = float(every.step_time_s.min())
        found = least_step_times(request, facts, PlanTable.of_rows([row]), np.array([np.inf]), 1e15)
        assert found[0] == pytest.approx(best, rel=1e-9)


def test_llama_3_405b_on_16_stages_is_laid_out_as_it_was_trained() -> None:
    """7, 8, ..., 8, 7 (arXiv 2407.21783, section 3.3.2) comes by itself."""
    scenario = scenario_of("llama-3.1-405b", "dgx-h100", 16384, 2048, 8192)
    row = plan_row(2048, tp=8, pp=16, dp=128)
    found, plan = best_plan(scenario, row)
    assert plan.layers_per_stage == (7, *(8,) * 14, 7)
    assert found < 1.0 + 1e-9


def best_plan(scenario: Scenario, row: dict[str, int], usable: float = 1e15) -> tuple[float, Any]:
    """(its step time over that of the layout by recipe, the plan)."""
    request, facts, table = SearchRequest(scenario=scenario), Facts.of(scenario), PlanTable.of_rows([row])
    step = least_step_times(request, facts, table, np.array([np.inf]), usable)
    _, _, plan = laid_out(request, row, step, usable)
    recipe = predict(facts, table, stage_table(scenario, table, chunks=False))
    return float(step[0] / recipe.step_time_s[0]), plan


@pytest.mark.parametrize(("layers", "pp"), [(61, 16), (46, 16), (94, 16), (127, 16), (31, 8), (17, 16)])
@pytest.mark.parametrize("vpp", [1, 2])
def test_any_number_of_layers_is_laid_out_on_any_number_of_stages(layers: int, pp: int, vpp: int) -> None:
    if pp * vpp > layers + 2:
        return
    model = scenario_of("llama-3.1-70b").model.model_copy(update={"num_layers": layers})
    scenario = scenario_of(model, "dgx-h100", 8 * pp, 256, 4096)
    gain, plan = best_plan(scenario, plan_row(256, tp=8, pp=pp, dp=1, vpp=vpp))
    assert sum(plan.layers_per_stage) == layers
    assert check_plan(plan, scenario) == ()
    assert gain <= 1.0 + 1e-9


def test_deepseek_v3_on_32_chunks_is_at_least_as_fast_as_its_published_layout() -> None:
    """61 layers, the first three dense, on 16 x 2 chunks; Megatron-Bridge's recipe is one of ours."""
    scenario = scenario_of("deepseek-v3", "h800-8x400g", 2048, 15360, 4096)
    for vpp in (1, 2):
        row = plan_row(15360, tp=2, pp=16, dp=64, ep=64, vpp=vpp, layout=3)
        gain, plan = best_plan(scenario, row)
        assert gain <= 1.0 + 1e-9
        assert sum(plan.layers_per_stage) == 61
        assert check_plan(plan, scenario) == ()


@pytest.mark.parametrize("kind", ["dense", "three-dense", "predicting"])
def test_memory_never_grows_with_layers_that_run_again_and_time_never_falls(kind: str) -> None:
    """What lets the fewest that fit be looked for by halves."""
    scenario, _ = small(kind, 8, 2)
    for vpp in (1, 2):
        every = Layouts.of(scenario, row_of(2, vpp, 2), partly=True)
        by_layout: dict[Any, list[int]] = {}
        for place, chunks in enumerate(every.chunks):
            by_layout.setdefault(chunks, []).append(place)
        for places in by_layout.values():
            for one in places:
                for more in places:
                    if all(a <= b for a, b in zip(every.recomputed[one], every.recomputed[more], strict=True)):
                        assert every.peak_bytes[more] <= every.peak_bytes[one] * (1 + 1e-12)
                        assert every.step_time_s[more] >= every.step_time_s[one] * (1 - 1e-12)


def test_stages_priced_one_by_one_are_those_of_the_whole_plan() -> None:
    scenario, _ = small("three-dense", 9, 3)
    row = row_of(3, 1, 2)
    plan = plan_of(scenario, row, ((2,), (3,), (4,)), (1, 3, 2))
    table, stages = PlanTable.of_rows([row]), stages_of_plan(scenario, plan)
    facts = Facts.of(scenario)
    times = PlanCosts.of(facts, table).times(stages)
    again = times.again_s(np.array(2.0), np.array(4.0))
    step = times.step_time_s(times.ends_s.max(axis=1), again)
    assert step[0] == pytest.approx(predict(facts, table, stages).step_time_s[0], rel=1e-12)
