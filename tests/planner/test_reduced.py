"""Scenarios with fewer layers: the same cut, in proportion."""

from __future__ import annotations

import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.checker import check_plan
from costmodel.errors import InvalidInput
from costmodel.spec.plan import Plan
from planner.profiling.reduced import reduced
from tests.plans import finished
from tests.scenarios import plan_row, scenario_of

_SCENARIO = scenario_of("llama-3.1-405b", "dgx-h100", devices=128, global_batch_size=64, seq_len=8192)


def _plan(**axes: int) -> Plan:
    row = plan_row(64, **({"tp": 8, "pp": 16, "dp": 1, "micro_batch_size": 1} | axes))
    return Plan.model_validate(dict(finished(_SCENARIO, row)))


def test_the_fewest_layers_are_one_a_chunk() -> None:
    scenario, plan = reduced(_SCENARIO, _plan(vpp=2, schedule=2))
    assert plan.layers_per_chunk == ((1, 1),) * 16
    assert plan.layers_per_stage == (2,) * 16
    assert scenario.model.num_layers == 32
    assert scenario.model.name == "llama-3.1-405b-32-layers"
    assert check_plan(plan, scenario) == check_plan(_plan(vpp=2, schedule=2), _SCENARIO)


def test_layers_are_shared_out_in_proportion_and_add_up() -> None:
    whole = _plan().model_copy(update={"layers_per_stage": (3, *(8,) * 14, 11)})
    for layers in range(16, 127):
        scenario, plan = reduced(_SCENARIO, whole, layers)
        assert sum(plan.layers_per_stage) == scenario.model.num_layers == layers
        assert plan.layers_per_stage[0] <= plan.layers_per_stage[1] <= plan.layers_per_stage[-1]
        assert min(plan.layers_per_stage) >= 1
    assert reduced(_SCENARIO, whole, 126) == (_SCENARIO, whole)


def test_what_is_recomputed_stays_a_share_of_its_stage() -> None:
    whole = _plan(pp=2, dp=8, recompute=2).model_copy(update={"recomputed_layers_per_stage": (63, 21)})
    _, plan = reduced(_SCENARIO, whole, 12)
    assert plan.recomputed_layers_per_stage == (6, 2)
    _, plan = reduced(_SCENARIO, whole)
    assert plan.recomputed_layers_per_stage == (1, 1)


def test_kinds_of_layers_stay() -> None:
    of = scenario_of("deepseek-v3", "dgx-h100", devices=64, global_batch_size=64, seq_len=4096)
    whole = Plan.model_validate(dict(finished(of, plan_row(64, tp=1, pp=1, dp=64))))
    scenario, _ = reduced(of, whole, 20)
    assert (scenario.model.num_dense_layers, scenario.model.num_layers) == (1, 20)
    scenario, _ = reduced(of, whole)
    assert (scenario.model.num_dense_layers, scenario.model.num_layers) == (0, 1)


def test_too_few_too_many_and_hybrids_are_refused() -> None:
    with pytest.raises(InvalidInput, match="layers: 15 is not usable; 16 "):
        reduced(_SCENARIO, _plan(), 15)
    with pytest.raises(InvalidInput, match=r"layers: 127 is not usable; 16 .* to 126"):
        reduced(_SCENARIO, _plan(), 127)
    hybrid = _SCENARIO.model_copy(update={"model": load_model("nemotron-h-56b")})
    with pytest.raises(InvalidInput, match="hybrid"):
        reduced(hybrid, _plan().model_copy(update={"layers_per_stage": (7,) * 16}), 16)
