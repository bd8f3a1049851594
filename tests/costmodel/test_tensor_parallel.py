"""Tensor and sequence parallelism: what is sent, what overlap hides, KV heads that are copied, and thin products."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.arrays import num
from costmodel.catalog.framework_catalog import load_framework
from costmodel.collectives import all_reduce
from costmodel.facts import Facts
from costmodel.kernels import gemm_s
from costmodel.spec.model import ModelSpec
from costmodel.table import PlanTable
from costmodel.term_outputs import evaluate_terms
from costmodel.terms.communication import TENSOR_PARALLEL
from planner.search.eliminate import eliminate
from planner.search.space import mesh_candidates
from tests.plans import finished, slugs
from tests.scenarios import axes_of, broken_down, lossless, plan_row, priced, scenario_of
from tests.searches import request_of


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_gathering_and_scattering_move_what_an_all_reduce_does(tp: int) -> None:
    """Korthikanti 2022 (arXiv 2205.05198), section 4.2.2: ``4 (t - 1)/t b s h`` elements each way of a layer.

    Without sequence parallelism it is two all-reduces forward and two backward of the same volume (Shoeybi 2019, arXiv
    1909.08053, section 3).
    """
    facts = lossless(Facts.of(scenario_of("llama-3-8b", seq_len=4096)))
    sent = TENSOR_PARALLEL.evaluate(
        facts,
        axes_of(**(dict.fromkeys(TENSOR_PARALLEL.axes, 1) | {"tp": tp, "moe_dispatcher": 0})),
    )
    size = num([4096.0 * 4096 * 2])
    whole = all_reduce(facts, num([float(tp)]), num([1.0])).seconds(size)
    np.testing.assert_allclose(sent["tp_block_s"], whole)
    bandwidth = float(facts.hardware.tier_bandwidth[0])
    np.testing.assert_allclose(whole, 2 * (tp - 1) / tp * size / bandwidth)


def test_without_overlap_all_of_it_is_exposed() -> None:
    scenario = scenario_of("llama-3-70b", devices=64, global_batch_size=64)
    facts = Facts.of(scenario)
    assert float(facts.cal.tp_exposed_share) < 1
    on, off = (plan_row(64, tp=8, dp=8, tp_overlap=code) for code in (1, 0))
    found = broken_down(scenario, on, off)
    whole = evaluate_terms(facts, PlanTable.of_rows([off]))["tp_block_s"][0]
    # Two blocks a layer, forward and again backward, for each of 8 micro-batches.
    assert found.time["tp_comm"][1] == pytest.approx(8 * 80 * 4 * whole)
    assert found.time["tp_comm"][0] == pytest.approx(float(facts.cal.tp_exposed_share) * found.time["tp_comm"][1])
    assert found.step_time_s[0] < found.step_time_s[1]
    # Across nodes nothing hides it, switch or not.
    across = [plan_row(64, tp=16, dp=4, tp_overlap=code) for code in (1, 0)]
    first, second = broken_down(scenario, *across).time["tp_comm"]
    assert first == second


@pytest.mark.parametrize(
    ("framework", "refused"),
    [("megatron-core", False), ("torchtitan", False), ("nanotron", False), ("maxtext", True), ("deepspeed", True)],
)
def test_overlap_is_a_choice_where_a_framework_has_the_switch(framework: str, refused: bool) -> None:
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=64)
    scenario = scenario.model_copy(update={"framework": load_framework(framework)})
    plan = finished(scenario, plan_row(64, tp=2, dp=4, zero_stage=0, tp_overlap=0))
    assert ("tp_overlap_known" in slugs(plan, scenario)) is refused
    request = request_of(scenario, ["tp=2", "tp_overlap=false"])
    assert (eliminate(request, mesh_candidates(request)).counts.get("tp_overlap_known", 0) > 0) is refused


def test_megatron_overlaps_only_with_sequence_parallelism() -> None:
    """megatron/training/arguments.py:1442."""
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=64)
    row = plan_row(64, tp=2, dp=4)
    for overlap, found in ((True, {"tp_overlap_needs_sequence_parallel"}), (False, set())):
        plan = finished(scenario, row, sequence_parallel=False, tp_overlap=overlap)
        assert slugs(plan, scenario) == found


def test_kv_heads_are_copied_once_there_are_fewer_than_ranks() -> None:
    """Megatron-Core 0.16 repeats them (transformer_config.py:1465): the rank's share of a layer stops falling there."""
    scenario = scenario_of("llama-3-8b", devices=64)
    rows = [plan_row(256, tp=tp, dp=64 // tp) for tp in (4, 8, 16, 32)]
    found = evaluate_terms(Facts.of(scenario), PlanTable.of_rows(rows))["dense_layer_params"]
    norms = 2 * 4096
    cut = 2 * 4096 * 4096 + 3 * 4096 * 14336  # queries and output, MLP
    kv = 2 * 4096 * 8 * 128
    expected = [norms + cut / tp + kv / min(tp, 8) for tp in (4, 8, 16, 32)]
    np.testing.assert_allclose(found, expected)


def test_thinner_products_run_at_a_lower_rate() -> None:
    """Llama 2 70B's query, key and value product at 2,048 tokens on an H100: 0.70 of the peak whole, 0.52 in eighths.

    microsoft/vidur @7d475133, data/profiling/compute/h100/meta-llama/Llama-2-70b-hf/mlp.csv, attn_pre_proj, retrieved
    2026-11-29.
    """
    measured = {1: 0.7011, 2: 0.6138, 4: 0.6482, 8: 0.5232}
    facts = Facts.of(scenario_of("llama-2-70b", precision="fp16"))
    peak = float(facts.hardware.peak_flops)
    kernels = float(facts.cal.compute_multiplier)
    found = {}
    for tp in measured:
        seconds = float(gemm_s(facts, num(2048.0), num(10240.0 / tp), num(8192.0))) / kernels
        found[tp] = 2 * 2048 * 10240 / tp * 8192 / seconds / peak
    assert found[1] > found[2] > found[4] > found[8]
    for tp, share in measured.items():
        assert found[tp] == pytest.approx(share, rel=0.2)


def gpt_162b() -> ModelSpec:
    """The model of Narayanan 2021 (arXiv 2104.04473), section 5.4.1: 32 layers, hidden size 20,480, 128 heads."""
    return ModelSpec(
        name="gpt-162b",
        num_layers=32,
        hidden_size=20480,
        num_heads=128,
        num_kv_heads=128,
        head_dim=160,
        ffn_hidden_size=4 * 20480,
        vocab_size=51200,
        max_position_embeddings=2048,
        gated_mlp=False,
        learned_position_embeddings=True,
        tie_word_embeddings=True,
        source="arXiv 2104.04473, section 5.4.1",
    )


@pytest.mark.parametrize("batch", [32, 128])
def test_tensor_parallelism_inside_nodes_and_pipelines_across_beat_either_alone(batch: int) -> None:
    """Narayanan 2021, figure 13: of (pp, tp) on 64 A100 the best is (8, 8), a node of eight; tp 32 is the slowest.

    Takeaway 1: tensor parallelism up to the devices of a node, then pipelines across nodes.
    """
    scenario = scenario_of(gpt_162b(), "dgx-a100-80gb", 64, batch, 2048, precision="fp16")
    scenario = scenario.model_copy(update={"framework": load_framework("megatron-lm-2021")})
    pairs = [(2, 32), (4, 16), (8, 8), (16, 4), (32, 2)]
    seconds = priced(
        scenario, *(plan_row(batch, pp=pp, tp=tp, zero_stage=0, recompute=2) for pp, tp in pairs)
    ).step_time_s
    assert pairs[int(seconds.argmin())] == (8, 8)
    assert seconds[0] == seconds.max() or batch == 32
    # Pipelines deeper than the batch can fill lose too.
    assert seconds[4] > seconds[2]
