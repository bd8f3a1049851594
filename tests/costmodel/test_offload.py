"""Offload: what leaves the device arrives in the hosts, transfers take what bytes do, and what is hidden is free."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from costmodel.arrays import num
from costmodel.catalog.framework_catalog import load_framework
from costmodel.facts import Facts
from costmodel.layers import total
from costmodel.predict import StagePrediction, predict, predict_stages
from costmodel.scenario import Scenario
from costmodel.spec.options import OFFLOADS
from costmodel.table import PlanTable, stage_table
from costmodel.terms.activations import RECOMPUTE_FULL, RECOMPUTE_NONE
from tests.costmodel.test_recompute import gpt
from tests.scenarios import broken_down, plan_row, recalibrated, scenario_of

NONE, OPTIMIZER, ACTIVATIONS, PARAMETERS = (OFFLOADS.index(name) for name in OFFLOADS)


@lru_cache
def scenario_under(framework: str, model: str = "llama-3-8b", cluster: str = "dgx-h100") -> Scenario:
    scenario = scenario_of(model, cluster, devices=8, global_batch_size=16, seq_len=4096)
    return scenario.model_copy(update={"framework": load_framework(framework)})


def priced(scenario: Scenario, facts: Facts | None = None, **axes: Any) -> StagePrediction:
    return broken_down(scenario, plan_row(16, dp=8) | axes, facts=facts)


def linked(facts: Facts, **hardware: float) -> Facts:
    return replace(facts, hardware=replace(facts.hardware, **{name: num(value) for name, value in hardware.items()}))


@pytest.mark.parametrize(
    ("framework", "offload", "leaves"),
    [
        ("megatron-core", OPTIMIZER, {"optimizer"}),
        ("megatron-core", ACTIVATIONS, {"activations"}),
        ("deepspeed", OPTIMIZER, {"optimizer", "gradients"}),
        ("deepspeed", PARAMETERS, {"parameters", "optimizer", "gradients"}),
        ("torchtitan", PARAMETERS, {"parameters", "optimizer", "gradients"}),
        ("maxtext", PARAMETERS, {"parameters"}),
        ("maxtext", OPTIMIZER, {"optimizer"}),
    ],
)
def test_what_leaves_the_device_arrives_in_the_hosts(framework: str, offload: int, leaves: set[str]) -> None:
    scenario = scenario_under(framework)
    # Gradients leave where a rank keeps its share of them.
    stage = 3 if offload == PARAMETERS and framework != "maxtext" else 2 if "gradients" in leaves else 1
    axes = {"zero_stage": stage, "gradient_sync": int(stage > 1), "recompute": RECOMPUTE_NONE}
    here, there = priced(scenario, **axes), priced(scenario, offload=offload, **axes)
    assert float(here.host_bytes[0]) == 0.0
    moved = 0.0
    for name in here.memory:
        left = float(here.memory[name][0, 0] - there.memory[name][0, 0])
        if name == "gathered_parameters":
            # Parameters that live there visit the device as gathered ones do.
            assert (left < 0) == (framework == "maxtext" and offload == PARAMETERS)
            continue
        assert (left > 0) == (name in leaves), name
        moved += left
    copied = 0.0
    if framework == "megatron-core" and offload == OPTIMIZER:
        copied = float(here.memory["gradients"][0, 0]) / 8  # of what a rank owns, for the hosts to read
    assert float(there.host_bytes[0]) == pytest.approx(8 * (moved + copied), rel=1e-9)
    assert float(there.step_time_s[0]) >= float(here.step_time_s[0])


@pytest.mark.parametrize("policy", [RECOMPUTE_NONE, RECOMPUTE_FULL])
def test_activations_cost_nothing_over_a_link_without_end(policy: int) -> None:
    scenario = scenario_under("llm-foundry")
    facts = Facts.of(scenario)
    free = recalibrated(linked(facts, host_bandwidth=np.inf), host_memory_bandwidth=1e30)
    here, there = priced(scenario, recompute=policy), priced(scenario, free, recompute=policy, offload=ACTIVATIONS)
    assert float(there.step_time_s[0]) == float(here.step_time_s[0])
    assert float(there.peak_bytes[0]) < float(here.peak_bytes[0])
    assert float(there.memory["activations"][0, 0]) == pytest.approx(
        float(here.memory["activations"][0, 0]) * 2 / 32, rel=1e-9
    )


@pytest.mark.parametrize("policy", [RECOMPUTE_NONE, RECOMPUTE_FULL])
@pytest.mark.parametrize("imbalance", [1.0, 1.5])
def test_what_hot_experts_keep_leaves_as_it_is_moved(policy: int, imbalance: float) -> None:
    """Every byte that leaves a device goes down once a micro-batch and comes up once."""
    scenario = scenario_under("deepspeed", "mixtral-8x7b")
    facts = recalibrated(Facts.of(scenario), host_overlap_share=0.0, host_link_efficiency=1.0)
    facts = recalibrated(linked(facts, host_bandwidth=10e9), host_memory_bandwidth=1e30, expert_imbalance=imbalance)
    axes = {"recompute": policy, "ep": 8, "zero_stage": 1}
    here, there = priced(scenario, facts, **axes), priced(scenario, facts, **axes, offload=ACTIVATIONS)
    layers, on_device, micro_batches = 32, 2, 2
    gone = {
        name: float(here.memory[name][0, 0] - there.memory[name][0, 0])
        for name in here.memory
        if here.memory[name][0, 0] != there.memory[name][0, 0]
    }
    hot = policy == RECOMPUTE_NONE and imbalance > 1
    assert set(gone) == ({"activations", "hot_experts"} if hot else {"activations"})
    assert float(there.host_bytes[0]) == pytest.approx(8 * sum(gone.values()), rel=1e-9)
    of_layer = sum(gone.values()) / (layers - on_device)
    waits = float(there.time["offload_comm"][0])
    assert waits == pytest.approx(2 * micro_batches * layers * of_layer / 10e9, rel=1e-9)


@pytest.mark.parametrize("offload", [OPTIMIZER, ACTIVATIONS, PARAMETERS])
def test_a_slower_link_is_never_faster_and_a_link_of_nothing_never_ends(offload: int) -> None:
    scenario = scenario_under("deepspeed")
    facts, last = Facts.of(scenario), 0.0
    axes = {"zero_stage": 3, "recompute": RECOMPUTE_FULL, "offload": offload, "gradient_sync": 1}
    for rate in (1e13, 450e9, 63e9, 31e9, 15.75e9, 1e9, 1e6):
        found = float(priced(scenario, linked(facts, host_bandwidth=rate), **axes).step_time_s[0])
        assert found >= last
        last = found
    assert last > 1e3


def test_what_nothing_hides_is_bytes_over_the_link() -> None:
    """Every micro-batch each layer fetches its shard twice, and every layer's inputs go down once and come up once."""
    scenario = scenario_under("deepspeed")
    facts = recalibrated(Facts.of(scenario), host_overlap_share=0.0, host_link_efficiency=1.0)
    facts = recalibrated(linked(facts, host_bandwidth=10e9), host_memory_bandwidth=1e30)
    axes = {"zero_stage": 3, "recompute": RECOMPUTE_FULL, "gradient_sync": 0}
    shard = 2.0 * float(scenario.model.params.total) / 8
    table = 2.0 * scenario.model.vocab_size * scenario.model.hidden_size / 8
    parameters = priced(scenario, facts, **axes, offload=PARAMETERS)
    # Two micro-batches; the embedding is not fetched for its backward pass. Gradients go down once a step.
    micro_batches = 2.0 * (2.0 * shard - table) / 10e9
    gradients = scenario.gradient_bytes * float(scenario.model.params.total) / 8 / 10e9
    assert float(parameters.time["offload_comm"][0]) == pytest.approx(micro_batches + gradients, rel=0.01)
    activations = priced(scenario, facts, **axes, offload=ACTIVATIONS)
    moved = 2.0 * 2.0 * 32 * 2.0 * 4096 * 4096
    assert float(activations.time["offload_comm"][0]) == pytest.approx(moved / 10e9, rel=1e-6)
    for found in (parameters, activations):
        assert float(total(found.time)[0]) == pytest.approx(float(found.step_time_s[0]), rel=1e-12)


def test_the_hosts_run_the_optimizer_at_the_speed_of_their_memory() -> None:
    scenario = scenario_under("megatron-core")
    facts = recalibrated(Facts.of(scenario), host_memory_bandwidth=200e9, optimizer_traffic_bytes=30.0)
    found = priced(scenario, facts, offload=OPTIMIZER)
    owned = float(scenario.model.params.total) / 8
    assert float(found.time["optimizer"][0]) == pytest.approx(owned * 30.0 / (200e9 / 8), rel=0.01)
    # MaxText's state visits the device for its step: 12 bytes a parameter down and up, beside each other.
    visiting = scenario_under("maxtext")
    own = priced(visiting, zero_stage=1)
    moved = priced(visiting, linked(Facts.of(visiting), host_bandwidth=1e9), zero_stage=1, offload=OPTIMIZER)
    assert float(moved.time["optimizer"][0]) == pytest.approx(float(own.time["optimizer"][0]), rel=1e-9)
    assert float(moved.time["offload_comm"][0]) > owned * 8.0 / 1e9


def test_grace_hides_what_pcie_does_not() -> None:
    """What is kept of a layer goes down while it runs over NVLink-C2C; over PCIe it waits."""
    waits = {
        cluster: float(
            priced(scenario_under("megatron-core", cluster=cluster), offload=ACTIVATIONS).time["offload_comm"][0]
        )
        for cluster in ("dgx-h100", "gh200-1x400g")
    }
    assert waits["gh200-1x400g"] < 0.2 * waits["dgx-h100"]


@pytest.mark.parametrize(
    ("layers", "hidden", "offload", "fits"),
    [
        # 13 billion parameters on one V100 with 32 GB, ten times what PyTorch alone trains: 1.4 (Ren 2021, abstract).
        (65, 4096, OPTIMIZER, True),
        (65, 4096, NONE, False),
        (40, 1536, NONE, True),
        (40, 2048, NONE, False),
    ],
)
def test_zero_offload_trains_13_billion_parameters_on_one_device(
    layers: int, hidden: int, offload: int, fits: bool
) -> None:
    model = gpt("gpt", layers, hidden, hidden // 128)
    scenario = scenario_of(model, "dgx-2", devices=1, global_batch_size=8, seq_len=1024, precision="fp16")
    scenario = scenario.model_copy(update={"framework": load_framework("deepspeed")})
    row = plan_row(8, zero_stage=2, recompute=RECOMPUTE_FULL) | {"offload": offload, "gradient_sync": 1}
    found = broken_down(scenario, row)
    device = scenario.cluster.accelerator.memory_bytes
    assert (float(found.peak_bytes[0]) <= device) is fits
    billions = model.params.total / 1e9
    assert billions == pytest.approx({65: 13.3, 40: 1.2 if hidden == 1536 else 2.1}[layers], rel=0.05)


def test_a_plan_that_the_hosts_can_not_hold_does_not_fit() -> None:
    scenario = scenario_under("megatron-core")
    table = PlanTable.of_rows([plan_row(16, dp=8) | {"offload": kind} for kind in (NONE, OPTIMIZER)])
    stages = stage_table(scenario, table)
    facts = Facts.of(scenario)
    need = predict_stages(facts, table, stages).host_bytes
    assert need[0] == 0
    for room, finite in ((need[1], True), (need[1] - 1, False)):
        found = predict(linked(facts, host_memory=room), table, stages).device_bytes(linked(facts, host_memory=room))
        assert np.isfinite(found).tolist() == [True, finite]


def test_what_is_missing_of_either_memory_adds_up_to_what_a_plan_lacks() -> None:
    scenario = scenario_under("megatron-core")
    table = PlanTable.of_rows([plan_row(16, dp=8) | {"offload": kind} for kind in (NONE, OPTIMIZER)])
    stages, facts = stage_table(scenario, table), Facts.of(scenario)
    found = predict(facts, table, stages)
    here, there = found.peak_bytes.tolist()
    hosts = float(found.host_bytes[1])
    for usable, room, lacks in (
        (here, hosts, [0.0, 0.0]),
        (here, hosts / 3, [0.0, 2.0]),
        (there / 4, 2 * hosts, [4 * here / there - 1, 3.0]),
        (there / 4, hosts / 3, [4 * here / there - 1, 5.0]),
    ):
        assert found.lack(linked(facts, host_memory=room), usable).tolist() == pytest.approx(lacks)


def test_gradients_that_are_summed_up_whole_stay_on_the_device() -> None:
    """A rank of ZeRO-1 has no share of them before the step ends."""
    scenario = scenario_under("deepspeed")
    whole = priced(scenario, zero_stage=1, offload=OPTIMIZER)
    cut = priced(scenario, zero_stage=2, gradient_sync=1, offload=OPTIMIZER)
    assert float(whole.memory["gradients"][0, 0]) > 0
    assert float(cut.memory["gradients"][0, 0]) == 0


def test_a_rank_sends_its_share_of_the_gradients_after_every_micro_batch() -> None:
    """ZeRO-Offload (Ren 2021, section 4): with stage 2 each rank moves its partition."""
    scenario = scenario_under("deepspeed")
    facts = recalibrated(
        linked(Facts.of(scenario), host_bandwidth=1e9), host_overlap_share=0, host_memory_bandwidth=1e30
    )
    cut = priced(scenario, facts, zero_stage=2, gradient_sync=1, offload=OPTIMIZER)
    once = priced(scenario, facts, zero_stage=1, offload=OPTIMIZER)
    micro_batches = 2  # of 16 sequences on 8 ranks
    link = 1e9 * float(facts.cal.host_link_efficiency)
    params = float(once.memory["gradients"][0, 0]) / 4
    down = 4 * params / 8 / link
    # Once a step instead of after every micro-batch.
    assert float(cut.time["offload_comm"][0] - once.time["offload_comm"][0]) == pytest.approx(
        (micro_batches - 1) * down, rel=0.02
    )
