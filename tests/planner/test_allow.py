"""What a search may use only when it is allowed to: offload, by a flag or by a pin; and modules to recompute."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.framework_catalog import load_framework
from costmodel.checker import check_plan
from costmodel.errors import InvalidInput, UnknownName
from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.rules import legal_mask
from costmodel.scenario import Scenario
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.options import OFFLOADS
from costmodel.spec.plan import Plan
from costmodel.table import stage_table
from planner.question import Question
from planner.resolving import request_of as resolved
from planner.search.allowed import allowed_options, words_of
from planner.search.answer import answer_to
from planner.search.choices import policies
from planner.search.eliminate import MEMORY, Elimination
from planner.search.request import SearchRequest
from planner.search.rows import expand, rows_of
from planner.search.rule_words import every_rule
from planner.search.solve import Outcome, Search
from planner.search.space import mesh_candidates
from tests.scenarios import scenario_of
from tests.searches import request_of

SEVENTY_B: dict[str, Any] = {
    "model": "llama-3-70b",
    "cluster": "dgx-h100",
    "devices": 16,
    "global_batch_size": 64,
    "seq_len": 4096,
    "top": 3,
}


@lru_cache
def seventy_b(**how: Any) -> dict[str, Any]:
    return answer_to(resolved(Question(**SEVENTY_B, **how)))


def test_what_fits_nowhere_fits_once_its_optimizer_may_live_with_the_hosts() -> None:
    """uc-001: 73.9 GiB of state on each of 16 devices; the thread's answer is CPU Adam."""
    assert seventy_b()["status"] == "infeasible"
    found = seventy_b(allow=("offload",))
    assert found["status"] == "optimal"
    for entry in found["plans"]:
        memory = entry["prediction"]["memory"]
        assert entry["plan"]["offload"] == "optimizer"
        assert memory["peak_bytes"] <= memory["usable_bytes"]
        assert 0 < memory["host_bytes_per_node"] <= memory["host_memory_bytes_per_node"]
        assert entry["prediction"]["provenance"] == "analytic"
    pinned = seventy_b(pins=("offload=optimizer",))
    assert pinned["best"] == found["best"]


def test_hosts_that_are_too_small_are_no_way_out() -> None:
    need = seventy_b(allow=("offload",))["plans"][0]["prediction"]["memory"]["host_bytes_per_node"]
    small = load_cluster("dgx-h100").model_copy(update={"host_memory_bytes_per_node": int(need) // 2})
    found = answer_to(resolved(Question(**SEVENTY_B | {"cluster": small}, allow=("offload",))))
    assert found["status"] == "infeasible"


def memory_reason(*pins: str, allow: tuple[str, ...] = (), **question: Any) -> str:
    asked = Question(**SEVENTY_B | question, pins=pins, allow=allow, framework="deepspeed")
    found = answer_to(resolved(asked))
    assert found["status"] == "infeasible"
    first = found["infeasibility"]["conflict"][0]
    assert first["rule"] == "memory"
    return str(first["reason"])


def with_hosts_of(gib: float) -> ClusterSpec:
    return load_cluster("dgx-h100").model_copy(update={"host_memory_bytes_per_node": int(gib * 2**30)})


@pytest.mark.parametrize(
    ("pins", "how", "billions"),
    [
        (("offload=optimizer",), {"cluster": with_hosts_of(300)}, 70.55),
        # Plans that offload nothing lack far more on the devices.
        ((), {"allow": ("offload",), "model": "llama-3.1-405b", "seq_len": 8192}, 405.85),
    ],
)
def test_hosts_that_are_short_are_blamed_and_not_the_devices(
    pins: tuple[str, ...], how: dict[str, Any], billions: float
) -> None:
    """Each of two nodes has to hold half of the 16 bytes of a parameter that its optimizer and gradient take."""
    reason = memory_reason(*pins, **how)
    there = 300.0 if "cluster" in how else 2048.0
    needed = float(reason.split(" needs ")[1].split()[0])
    assert needed == pytest.approx(16 * billions * 1e9 / 2 / 2**30, rel=0.01)
    assert reason.endswith(
        f", offload optimizer) needs {needed:.1f} GiB of host memory per node for what it offloads, where a node of "
        f"dgx-h100 has {there:.1f} GiB"
    )


def test_both_memories_are_named_where_both_are_short() -> None:
    reason = memory_reason("offload=optimizer", "recompute=none", "mbs=16", cluster=with_hosts_of(300))
    assert "a node of dgx-h100 has 300.0 GiB, and " in reason
    assert "GiB per device" in reason


def test_the_devices_alone_are_blamed_where_nothing_may_be_offloaded_or_the_hosts_have_the_room() -> None:
    for pins in (("recompute=none", "mbs=16"), ("offload=optimizer", "recompute=none", "mbs=16")):
        reason = memory_reason(*pins)
        assert "host memory" not in reason
        assert "GiB per device" in reason
        assert ("offload optimizer" in reason) == ("offload=optimizer" in pins)


def test_without_a_leanest_plan_both_limits_are_named_where_something_may_be_offloaded() -> None:
    for pins, named in ((("offload=optimizer",), True), ((), False)):
        request = resolved(Question(**SEVENTY_B | {"cluster": with_hosts_of(300)}, pins=pins))
        none = Outcome(elimination=Elimination(legal=np.zeros(0, dtype=np.bool_), counts={MEMORY: 1}), meshes=1)
        (conflict,) = every_rule(request, Facts.of(request.scenario), none)
        assert ("300.0 GiB of host memory per node" in conflict["reason"]) is named


def test_a_rule_on_offload_is_named() -> None:
    found = answer_to(resolved(Question(**SEVENTY_B | {"devices": 64}, pins=("offload=parameters",))))
    (conflict,) = [entry for entry in found["infeasibility"]["conflict"] if entry["rule"] == "offload_known"]
    assert conflict["reason"] == "offload parameters: Megatron-Core 0.16 has activations, optimizer"
    assert conflict["meshes"] == found["search"]["meshes"]


@pytest.mark.parametrize(
    ("framework", "how"),
    [
        ("megatron-core", {"allow": True}),
        ("deepspeed", {"allow": True}),
        ("torchtitan", {"allow": True}),
        ("megatron-core", {"pins": ("recompute_modules=moe,moe_act+layernorm",)}),
        ("megatron-core", {"pins": ("recompute=full", "recompute_interval=1,3")}),
    ],
)
def test_the_best_is_that_of_everything_priced(framework: str, how: dict[str, Any]) -> None:
    """Against every mesh, sharding, policy, option and layout priced by themselves."""
    scenario = scenario_of("deepseek-v2-lite", "dgx-a100-40gb", devices=8, global_batch_size=8, seq_len=2048)
    scenario = scenario.model_copy(update={"framework": load_framework(framework)})
    also = allowed_options(scenario.framework, ["offload"]) if how.get("allow") else ()
    request = request_of(scenario, how.get("pins", ()), top=5, also=also)
    outcome = Search(request).run()
    meshes = mesh_candidates(request)
    places = np.arange(len(policies(request)))
    count = len(meshes["tp"])
    rows, _ = rows_of(request, meshes, np.repeat(places, count), np.tile(np.arange(count), len(places)))
    table, _ = expand(request, rows)
    table = table.take(legal_mask(scenario, table))
    facts = Facts.of(scenario)
    priced = predict(facts, table, stage_table(scenario, table))
    fitting = priced.device_bytes(facts) <= scenario.usable_bytes
    assert outcome.best_proven or not fitting.any()
    assert bool(outcome.best) == bool(fitting.any())
    if outcome.best:
        assert outcome.best[0].step_time_s == pytest.approx(float(priced.step_time_s[fitting].min()), rel=1e-9)


def legal_plans(answer: dict[str, Any], scenario: Scenario) -> bool:
    return all(check_plan(Plan.model_validate(entry["plan"]), scenario) == () for entry in answer["plans"])


def test_what_is_found_is_legal_to_the_independent_judge() -> None:
    request = resolved(Question(**SEVENTY_B, allow=("offload",)))
    assert legal_plans(seventy_b(allow=("offload",)), request.scenario)


def test_words_give_the_options_of_the_framework_and_come_back() -> None:
    both = allowed_options(load_framework("deepspeed"), ["offload, OFFLOAD", "offload"])
    assert both == tuple(("offload", OFFLOADS.index(kind)) for kind in ("optimizer", "parameters", "activations"))
    assert words_of(both) == ["offload"]
    assert words_of(()) == []
    with pytest.raises(UnknownName, match="magic"):
        allowed_options(load_framework("deepspeed"), ["magic"])
    for framework, why in (("nanotron", "has none"), ("colossalai", "not known here")):
        with pytest.raises(InvalidInput, match=why):
            allowed_options(load_framework(framework), ["offload"])


@pytest.mark.parametrize(
    "pins",
    [("recompute=full", "recompute_modules=core_attn"), ("recompute=none", "recompute_interval=2")],
)
def test_pins_that_leave_no_policy_say_what_goes_together(pins: tuple[str, ...]) -> None:
    request: SearchRequest = request_of(scenario_of("llama-3-8b", devices=8, global_batch_size=8), pins)
    with pytest.raises(InvalidInput, match="go with recompute=selective, recompute_interval with recompute=full"):
        policies(request)
