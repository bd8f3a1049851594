"""What must hold between two predictions, whatever the numbers are.

Most properties are checked on pools of random legal plans at once; hypothesis draws what changes between the two.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.arrays import Ints, Num
from costmodel.catalog.model_catalog import load_model
from costmodel.facts import Facts, HardwareFacts
from costmodel.predict import StagePrediction, predict, predict_stages
from costmodel.scenario import Scenario
from costmodel.spec.plan import SCHEDULES
from costmodel.stages import Layout
from costmodel.table import PlanTable, StageTable, stage_table
from tests.scenarios import broken_down, plan_row, random_legal_plans, recalibrated, scenario_of

FULL, NONE = 2, 0
STATE = ("parameters", "gradients", "optimizer")
COMMUNICATION = ("tp_comm", "cp_comm", "ep_comm", "pp_comm", "dp_comm")
SCENARIOS = {
    "dense": lambda: scenario_of("llama-3-8b", "dgx-h100", 64, 256, 8192),
    "moe": lambda: scenario_of("deepseek-v3", "meta-llama3-h100", 512, 2048, 4096),
    "tied": lambda: scenario_of("gemma-2-9b", "dgx-a100-80gb", 64, 256, 8192),
}
pools = st.sampled_from(sorted(SCENARIOS))
factors = st.floats(1.001, 100)


@cache
def pool(name: str) -> tuple[Scenario, Facts, PlanTable, StageTable]:
    scenario = SCENARIOS[name]()
    table = random_legal_plans(scenario, 400, seed=11)
    assert len(table) >= 300
    return scenario, Facts.of(scenario), table, stage_table(scenario, table)


@cache
def step_time_s(name: str) -> Num:
    _, facts, table, stages = pool(name)
    return predict(facts, table, stages).step_time_s


def changed(table: PlanTable, **columns: Ints) -> PlanTable:
    return PlanTable(columns={**table.columns, **columns})


def in_full(facts: Facts, table: PlanTable, stages: StageTable) -> StagePrediction:
    return predict_stages(facts, table, stages)


def state(prediction: StagePrediction) -> Num:
    held: Num = sum((prediction.memory[term] for term in STATE), start=np.zeros(()))
    return held


def scaled(hardware: HardwareFacts, what: str, factor: float) -> HardwareFacts:
    """Faster in one respect."""
    if what == "peak":
        return replace(
            hardware,
            peak_flops=hardware.peak_flops * factor,
            attention_peak_flops=hardware.attention_peak_flops * factor,
        )
    if what == "memory bandwidth":
        return replace(hardware, memory_bandwidth=hardware.memory_bandwidth * factor)
    rates = list(hardware.tier_bandwidth)
    tier = int(what.removeprefix("tier "))
    rates[tier] = rates[tier] * factor
    return replace(hardware, tier_bandwidth=tuple(rates))


@settings(max_examples=60)
@given(name=pools, what=st.sampled_from(["peak", "memory bandwidth", "tier 0", "tier 1", "tier 2"]), factor=factors)
def test_faster_hardware_never_makes_a_step_slower(name: str, what: str, factor: float) -> None:
    _, facts, table, stages = pool(name)
    faster = predict(replace(facts, hardware=scaled(facts.hardware, what, factor)), table, stages).step_time_s
    assert (faster <= step_time_s(name) * (1 + 1e-12)).all()


@pytest.mark.parametrize("what", ["peak", "memory bandwidth", "tier 0", "tier 1"])
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_resource_matters_to_some_plan(name: str, what: str) -> None:
    _, facts, table, stages = pool(name)
    faster = predict(replace(facts, hardware=scaled(facts.hardware, what, 2)), table, stages).step_time_s
    assert (faster < step_time_s(name) * 0.999).any()


LATENCIES = ("gemm_launch_s", "scale_up_latency_s", "scale_out_latency_s", "scale_up_hop_s", "scale_out_hop_s")


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_without_latency_every_step_is_faster(name: str) -> None:
    _, facts, table, stages = pool(name)
    instant = recalibrated(facts, **dict.fromkeys(LATENCIES, 0.0))
    found = predict(instant, table, stages).step_time_s
    assert (found < step_time_s(name)).all()
    assert (found > 0.3 * step_time_s(name)).all()


@settings(max_examples=30)
@given(name=pools, factor=st.floats(0, 1), parameter=st.sampled_from(LATENCIES))
def test_less_latency_never_makes_a_step_slower(name: str, factor: float, parameter: str) -> None:
    _, facts, table, stages = pool(name)
    less = recalibrated(facts, **{parameter: float(getattr(facts.cal, parameter)) * factor})
    assert (predict(less, table, stages).step_time_s <= step_time_s(name) * (1 + 1e-12)).all()


@pytest.mark.parametrize("model", ["gpt2", "llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite"])
@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_one_device_neither_communicates_nor_waits(model: str, zero_stage: int) -> None:
    scenario = scenario_of(model, "h100-1", 1, 8, 1024)
    found = broken_down(scenario, plan_row(8, zero_stage=zero_stage))
    for part in (*COMMUNICATION, "bubble"):
        assert found.time[part] == pytest.approx(0, abs=1e-9), part


@settings(max_examples=30)
@given(name=pools, times=st.integers(2, 16))
def test_more_micro_batches_never_raise_the_share_of_the_bubble(name: str, times: int) -> None:
    _, facts, table, stages = pool(name)
    once, more = (
        in_full(facts, changed(table, num_microbatches=table["num_microbatches"] * n), stages) for n in (1, times)
    )
    share_once, share_more = (found.time["bubble"] / found.step_time_s for found in (once, more))
    assert (share_more <= share_once + 1e-12).all()
    assert (share_more[table["pp"] > 1] < share_once[table["pp"] > 1]).all()


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_twice_the_tensor_parallelism_never_raises_state(name: str) -> None:
    """With as many data-parallel ranks; embedding tables are padded further, yet no rank holds more."""
    scenario, facts, table, _ = pool(name)
    every = stage_table(scenario, table, every_stage=True)
    once, twice = (state(in_full(facts, changed(table, tp=table["tp"] * n), every)) for n in (1, 2))
    assert (twice <= once).all()


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_higher_zero_stage_never_raises_state(name: str) -> None:
    scenario, facts, table, _ = pool(name)
    sharded = table.take(table["zero_stage"] >= 1)
    every = stage_table(scenario, sharded, every_stage=True)
    by_stage = [
        state(in_full(facts, changed(sharded, zero_stage=np.full(len(sharded), stage)), every)) for stage in range(4)
    ]
    for lower, higher in pairwise(by_stage):
        assert (higher <= lower).all()
    spread = (sharded["dp_shard"] > 1) & (sharded["ep"] * sharded["etp"] == 1)
    assert (by_stage[3][spread] < by_stage[0][spread]).all()


@settings(max_examples=20)
@given(name=pools, times=st.sampled_from([2, 4, 8]))
def test_sequence_and_ring_grown_together_keep_activations(name: str, times: int) -> None:
    _, facts, table, stages = pool(name)
    ring = table.take(table["cp_comm_type"] == 0)
    ring_stages = stages.take(np.flatnonzero(table["cp_comm_type"] == 0))
    longer = replace(facts, work=replace(facts.work, seq_len=facts.work.seq_len * times))
    once = in_full(facts, ring, ring_stages).memory
    grown = in_full(longer, changed(ring, cp=ring["cp"] * times), ring_stages).memory
    for term in ("activations", "recompute_workspace", "logits", "dispatch_buffers"):
        np.testing.assert_allclose(grown[term], once[term], rtol=1e-12, err_msg=term)


@pytest.mark.parametrize("model", ["llama-3-8b", "llama-3.1-70b", "mixtral-8x7b"])
@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("recompute", [0, 1, 2])
def test_interleaving_never_lowers_the_peak(model: str, pp: int, recompute: int) -> None:
    layers = load_model(model).num_layers
    scenario = scenario_of(model, devices=pp, global_batch_size=4 * pp)
    chunked = [v for v in range(2, layers // pp + 1) if layers % (pp * v) == 0]
    assert chunked
    rows = [plan_row(4 * pp, pp=pp, vpp=vpp, recompute=recompute) for vpp in (1, *chunked)]
    peak = broken_down(scenario, *rows).peak_bytes
    assert (peak[1:] > peak[0]).all()


BIG_DENSE = {
    "llama-3.1-405b": {"tp": 8, "pp": 16, "dp": 4},
    "llama-3.1-70b": {"tp": 8, "pp": 4, "dp": 8},
    "qwen2.5-72b-instruct": {"tp": 4, "pp": 8, "dp": 8},
    "llama-2-70b": {"tp": 8, "pp": 2, "cp": 2, "dp": 8},
}


@pytest.mark.parametrize("model", sorted(BIG_DENSE))
@pytest.mark.parametrize("cluster", ["dgx-h100", "dgx-a100-80gb", "dgx-b200"])
def test_full_recompute_costs_a_third_more_at_most_and_lowers_memory(model: str, cluster: str) -> None:
    """A forward pass more, 2 N on 6 N; less on the step, part of which is neither."""
    mesh = BIG_DENSE[model]
    devices = mesh["tp"] * mesh["pp"] * mesh["dp"] * mesh.get("cp", 1)
    scenario = scenario_of(model, cluster, devices, 32 * mesh["dp"], 4096)
    none, full = (plan_row(32 * mesh["dp"], **mesh, recompute=recompute) for recompute in (NONE, FULL))
    found = broken_down(scenario, none, full)
    assert 1.15 < found.step_time_s[1] / found.step_time_s[0] < 1.35
    assert found.peak_bytes[1] < found.peak_bytes[0]


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_recomputing_more_takes_longer_and_keeps_less(name: str) -> None:
    scenario, facts, table, _ = pool(name)
    every = stage_table(scenario, table, every_stage=True)
    none, selective, full = (
        in_full(facts, changed(table, recompute=np.full(len(table), policy)), every) for policy in range(3)
    )
    assert (none.step_time_s <= selective.step_time_s * (1 + 1e-12)).all()
    assert (selective.step_time_s <= full.step_time_s * (1 + 1e-12)).all()
    # A plan that waits for its gradients anyway recomputes for nothing; few do.
    assert (selective.step_time_s * (1 + 1e-12) < full.step_time_s).mean() > 0.9
    assert (none.memory["activations"] >= selective.memory["activations"]).all()
    assert (selective.memory["activations"] > full.memory["activations"]).all()


@settings(max_examples=20)
@given(name=pools, parameter=st.sampled_from(["tp_exposed_share", "cp_exposed_share", "ep_exposed_share"]))
def test_hiding_communication_never_makes_a_step_slower(name: str, parameter: str) -> None:
    _, facts, table, stages = pool(name)
    hidden = recalibrated(facts, **{parameter: 0.0})
    assert (predict(hidden, table, stages).step_time_s <= step_time_s(name) * (1 + 1e-12)).all()


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_expert_parallelism_cuts_the_experts_state_and_leaves_the_rest(name: str) -> None:
    scenario, facts, _, _ = pool(name)
    if scenario.model.moe is None:
        rows = [plan_row(2048, dp=64), plan_row(2048, dp=64, ep=1)]
        found = broken_down(scenario, *rows)
        assert found.step_time_s[0] == found.step_time_s[1]
        return
    rows = [plan_row(2048, dp=256, pp=2, zero_stage=0, ep=ep) for ep in (1, 2, 64)]
    one, two, many = state(broken_down(scenario, *rows, facts=facts))
    experts = 2 * (one - two)
    np.testing.assert_allclose(many, one - experts * 63 / 64, rtol=1e-12)


@pytest.mark.parametrize("name", ["dense", "tied"])
def test_a_second_pipeline_layout_moves_layers_but_not_work(name: str) -> None:
    """The mean stage does not change, so neither does the bubble."""
    scenario, facts, table, _ = pool(name)
    flat = table.take((table["pp"] > 1) & (table["vpp"] == 1) & (table["pp"] <= 8))
    bubbles = []
    for layout in Layout:
        again = changed(flat, layout=np.full(len(flat), int(layout)))
        bubbles.append(in_full(facts, again, stage_table(scenario, again)).time["bubble"])
    for bubble in bubbles[1:]:
        np.testing.assert_allclose(bubble, bubbles[0], rtol=1e-9)


def test_schedules_differ_in_what_they_keep_alive_and_how_long_they_wait() -> None:
    """gpipe waits as long as 1f1b and keeps every micro-batch; zb_h1 waits less and keeps p of them on each stage."""
    scenario = scenario_of("llama-3-8b", devices=4, global_batch_size=32)
    rows = [plan_row(32, pp=4, schedule=SCHEDULES.index(name)) for name in ("1f1b", "gpipe", "zb_h1")]
    found = broken_down(scenario, *rows)
    plain, gpipe, zero_bubble = range(3)
    assert found.step_time_s[gpipe] == found.step_time_s[plain]
    assert found.peak_bytes[gpipe] > found.peak_bytes[zero_bubble] > found.peak_bytes[plain]
    kept = found.memory["activations"]
    assert kept[zero_bubble, 0] == kept[plain, 0] == pytest.approx(kept[zero_bubble].max())
    # A third where nothing but products takes time; attention and norms have no gradients of weights to put off.
    assert 1 / 3 < found.time["bubble"][zero_bubble] / found.time["bubble"][plain] < 2 / 3
