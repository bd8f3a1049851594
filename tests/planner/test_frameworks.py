"""The search under every framework: proven against all plans one by one, and judged by the independent checker."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from costmodel.catalog.framework_catalog import framework_names, load_framework
from costmodel.checker import check_plan
from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.rules import legal_mask
from costmodel.scenario import Scenario
from costmodel.spec.options import MOE_DISPATCHERS
from costmodel.spec.plan import SCHEDULES, Plan
from costmodel.table import PlanTable, stage_table
from tests.planner.test_search import answered, default_least, inner_of, meshes_of, small
from tests.searches import request_of

OTHERS = [SCHEDULES.index(name) for name in ("gpipe", "zb_h1", "zb_v", "dualpipe", "dualpipe_v")]

KEPT, ONCE = {"reshard_after": 2}, {"gradient_sync": 0}
# What a framework's plans differ in beside the space, unasked: parameters that stay, gradients that are reduced once.
BY_THEMSELVES = {"torchtitan": (KEPT, ONCE, KEPT | ONCE), "pytorch-fsdp": (KEPT,)}


def under(scenario: Scenario, framework: str) -> Scenario:
    return scenario.model_copy(update={"framework": load_framework(framework)})


@cache
def every_plan(name: str) -> PlanTable:
    """All plans of a question with every schedule, which no framework has a say in."""
    scenario = small(name)
    rows = [row for mesh in meshes_of(scenario, default_least(scenario)) for row in inner_of(scenario, mesh, ())]
    table = PlanTable.of_rows(rows)
    deep = table.take((table["pp"] > 1) & (table["vpp"] <= 2))
    return PlanTable.concatenate([table, *(changed(deep, {"schedule": code}) for code in OTHERS)])


def changed(table: PlanTable, options: Mapping[str, int]) -> PlanTable:
    """The same plans with other options."""
    return PlanTable(columns={**table.columns, **{axis: np.full(len(table), code) for axis, code in options.items()}})


def least_step_time(scenario: Scenario, name: str) -> float:
    """Of all plans, one by one: nothing of the search's space, bounds or solver. Infinite where none is legal."""
    # The dispatcher is the one that the framework's file has first.
    known = scenario.framework.known_moe_dispatchers() if scenario.model.moe else None
    table = changed(every_plan(name), {"moe_dispatcher": MOE_DISPATCHERS.index(known[0]) if known else 0})
    sharded = table.take(table["zero_stage"] >= 2)
    own = BY_THEMSELVES.get(scenario.framework.name, ())
    table = PlanTable.concatenate([table, *(changed(sharded, options) for options in own)])
    lawful = table.take(legal_mask(scenario, table))
    prices = predict(Facts.of(scenario), lawful, stage_table(scenario, lawful))
    return float(prices.step_time_s[prices.peak_bytes <= scenario.usable_bytes].min(initial=np.inf))


@pytest.mark.parametrize("name", ["tight", "experts", "first-layer-dense"])
@pytest.mark.parametrize("framework", framework_names())
def test_the_best_plan_is_the_best_of_all_and_legal(framework: str, name: str) -> None:
    scenario = under(small(name), framework)
    answer, least = answered(request_of(scenario, top=5)), least_step_time(scenario, name)
    if np.isinf(least):
        alone = framework in ("llm-foundry", "pytorch-fsdp", "xla-fsdp")
        assert (alone, name) == (True, "experts"), "data parallel alone: 2 sequences don't go round 16 devices"
        assert answer["status"] == "infeasible"
        return
    assert answer["status"] == "optimal"
    assert answer["best"] == pytest.approx(least, rel=1e-12)
    for entry in answer["plans"]:
        assert check_plan(Plan.model_validate(entry["plan"]), scenario) == ()


@pytest.mark.parametrize(
    ("framework", "pins", "rule"),
    [
        ("nanotron", ("recompute=selective",), "recompute_known"),
        ("llm-foundry", ("pp=2",), "schedule_known"),
        ("llm-foundry", ("cp=2",), "cp_comm_type_known"),
        ("accelerate", ("cp=2", "cp_comm_type=a2a", "dp_replicate=2"), "a2a_shards_over_all_replicas"),
        ("torchtitan", ("cp=2", "cp_comm_type=p2p"), "ring_rotation_removed"),
        ("deepspeed", ("pp=2", "zero_stage=3"), "pipeline_needs_zero_below_2"),
        ("maxtext", ("cp=2", "cp_comm_type=a2a"), "ulysses_needs_tpu"),
    ],
)
def test_a_pin_that_the_framework_can_t_keep_names_the_rule(framework: str, pins: tuple[str, ...], rule: str) -> None:
    answer = answered(request_of(under(small("tight"), framework), pins))
    assert answer["status"] == "infeasible"
    assert rule in answer["eliminated"]
    named = {entry["rule"] for entry in answer["infeasibility"]["conflict"]}
    assert named & {f"pin {pin}" for pin in pins}
