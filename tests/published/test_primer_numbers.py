"""The worked numbers of papers and textbooks that every formula of the cost model has to reproduce.

``primer`` is a page of distributed-training basics; its figures are those of the papers that it cites.
"""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.arrays import num
from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.model_catalog import load_model
from costmodel.collectives import all_reduce
from costmodel.facts import Facts
from costmodel.flops import matmul_params, model_flops_per_token, recomputed_flops_per_token
from costmodel.predict import StagePrediction
from costmodel.spec.model import ModelSpec
from costmodel.terms.activations import block_bytes_per_token, score_matrix_bytes_per_token
from costmodel.terms.state import state_bytes
from tests.scenarios import broken_down, lossless, plan_row, recalibrated, scenario_of

GB = 1e9
GIB = 2**30


@pytest.mark.parametrize(("zero_stage", "published_gb"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_stages_of_a_7_5b_model_on_64_devices(zero_stage: int, published_gb: float) -> None:
    """Rajbhandari 2019 (arXiv 1910.02054), figure 1: 2 + 2 + 12 bytes per parameter."""
    found = state_bytes(
        num(7.5e9), num(64), num(zero_stage), param_bytes=num(2), gradient_bytes=num(2), optimizer_bytes=num(12)
    )
    assert found / GB == pytest.approx(published_gb, abs=0.05)


def gpt_layer_bytes(h: float, a: float, s: float, b: float, t: int, *, sequence_parallel: bool, fused: bool) -> float:
    """A GPT block with dropout, 16-bit activations and a feed-forward width of 4 h, on one of t ranks."""
    per_token = block_bytes_per_token(
        hidden=num(h),
        qkv_width=num(3 * h / t),
        output_width=num(h / t),
        ffn_input_width=num(4 * h / t),
        ffn_width=num(4 * h / t),
        sequence_shards=num(t if sequence_parallel else 1),
        element_bytes=num(2),
        dropout=1.0,
    )
    if not fused:
        per_token = per_token + score_matrix_bytes_per_token(heads=num(a / t), seq_len=num(s))
    return float(s * b * per_token)


# Korthikanti 2022 (arXiv 2205.05198), table 3: 22B, 175B (GPT-3), 530B and 1T, all with 2048 tokens.
KORTHIKANTI_SHAPES = [(6144, 64, 2048, 4), (12288, 96, 2048, 1), (20480, 128, 2048, 1), (25600, 160, 2048, 1)]


@pytest.mark.parametrize(("h", "a", "s", "b"), KORTHIKANTI_SHAPES)
def test_activations_of_a_layer(h: int, a: int, s: int, b: int) -> None:
    """Equation 1: ``s b h (34 + 5 a s / h)``; without the score matrix ``34 s b h``."""
    whole = gpt_layer_bytes(h, a, s, b, 1, sequence_parallel=False, fused=False)
    assert whole == pytest.approx(s * b * h * (34 + 5 * a * s / h))
    assert gpt_layer_bytes(h, a, s, b, 1, sequence_parallel=False, fused=True) == pytest.approx(34 * s * b * h)


@pytest.mark.parametrize("t", [2, 4, 8])
@pytest.mark.parametrize(("h", "a", "s", "b"), KORTHIKANTI_SHAPES)
def test_activations_of_a_layer_under_tensor_parallelism(h: int, a: int, s: int, b: int, t: int) -> None:
    """Equation 2: ``s b h (10 + 24/t + 5 a s / (h t))``; equation 4, with sequence parallelism: everything over t."""
    plain = gpt_layer_bytes(h, a, s, b, t, sequence_parallel=False, fused=False)
    sharded = gpt_layer_bytes(h, a, s, b, t, sequence_parallel=True, fused=False)
    assert plain == pytest.approx(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)))
    assert sharded == pytest.approx(s * b * h / t * (34 + 5 * a * s / h))


def test_activations_of_the_7b_example() -> None:
    """Primer, "Activations": h = 4096, 32 layers and heads, s = 4096, b = 1."""
    fused = gpt_layer_bytes(4096, 32, 4096, 1, 1, sequence_parallel=False, fused=True)
    naive = gpt_layer_bytes(4096, 32, 4096, 1, 1, sequence_parallel=False, fused=False)
    assert round(fused / GB, 2) == 0.57
    assert round(32 * fused / GB) == 18
    assert naive / GB == pytest.approx(3.3, abs=0.05)
    assert 32 * naive / GB > 100


@pytest.mark.parametrize(("bandwidth", "published_s"), [(50e9, 0.56), (450e9, 0.06)])
def test_gradient_all_reduce_of_a_7b_model(bandwidth: float, published_s: float) -> None:
    """Primer, "Back-of-envelope": 14 GB of gradients over InfiniBand and over NVLink, on a ring of many ranks."""
    ranks, size = 1024, 14 * GB
    found = float(all_reduce(flat_network(bandwidth), num(ranks), num(1)).seconds(num(size)))
    assert round(found, 2) == published_s
    assert found == pytest.approx(2 * (ranks - 1) / ranks * size / bandwidth, rel=1e-12)


def test_all_reduce_between_nodes_of_one_rank_each_is_the_textbook_ring() -> None:
    """One rank per node leaves one link per node, whatever joins the devices inside it."""
    facts = lossless(Facts.of(scenario_of(cluster="dgx-h100")))
    product = all_reduce(facts, num(1024), num(8)).seconds(num(14 * GB))
    assert round(float(product), 2) == 0.56


def flat_network(bandwidth_bytes_per_s: float) -> Facts:
    """All devices on one switch."""
    cluster = load_cluster("dgx-h100")
    one_tier = cluster.tiers[0].model_copy(
        update={"group_devices": None, "bandwidth_bytes_per_s": bandwidth_bytes_per_s}
    )
    return lossless(Facts.of(scenario_of(cluster=cluster.model_copy(update={"tiers": (one_tier,)}))))


UNIFORM = ModelSpec(
    name="uniform",
    num_layers=64,
    hidden_size=8192,
    num_heads=64,
    num_kv_heads=64,
    head_dim=128,
    ffn_hidden_size=28672,
    vocab_size=128,
    tie_word_embeddings=False,
)
"""Its two ends weigh nothing beside the layers."""


def on_a_pipeline(pp: int, num_microbatches: int, vpp: int) -> StagePrediction:
    scenario = scenario_of(UNIFORM, devices=pp, global_batch_size=num_microbatches, seq_len=4096)
    # Transfers between stages, the optimizer step and the host belong to no bubble.
    facts = recalibrated(
        Facts.of(scenario),
        pp_exposed_share=0,
        pp_exposed_share_interleaved=0,
        fixed_step_s=0,
        optimizer_traffic_bytes=0,
    )
    return broken_down(scenario, plan_row(num_microbatches, pp=pp, vpp=vpp), facts=facts)


@pytest.mark.parametrize(
    ("pp", "num_microbatches", "vpp", "published"),
    [(4, 8, 1, 3 / 8), (8, 32, 1, 7 / 32), (16, 64, 1, 15 / 64), (4, 8, 2, 3 / 16), (8, 64, 4, 7 / 256)],
)
def test_bubble_is_waiting_over_useful_work(pp: int, num_microbatches: int, vpp: int, published: float) -> None:
    """``(p - 1) / m`` (Huang 2018, arXiv 1811.06965), over v chunks a device ``(p - 1) / (v m)`` (Narayanan 2021,
    arXiv 2104.04473, section 2.2); primer, "Pipeline parallelism".
    """
    found = on_a_pipeline(pp, num_microbatches, vpp)
    bubble = found.time["bubble"]
    assert bubble / (found.step_time_s - bubble) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("pp", [4, 8, 16])
def test_four_micro_batches_a_stage_keep_the_bubble_under_a_fifth_of_the_step(pp: int) -> None:
    found = on_a_pipeline(pp, 4 * pp, 1)
    assert found.time["bubble"] / found.step_time_s < 0.20


SHORT = 16  # tokens; attention over so few costs nothing beside the parameters


def test_training_takes_6n_flops_a_token_and_8n_with_full_recompute() -> None:
    """Kaplan 2020 (arXiv 2001.08361); primer, "Activation checkpointing": about 33 % more."""
    model = load_model("llama-3.1-405b")
    parameters = model.params.total
    needed = model_flops_per_token(model, SHORT)
    executed = needed + recomputed_flops_per_token(model, SHORT, share=1.0)
    assert needed == pytest.approx(6 * parameters, rel=0.01)
    assert executed == pytest.approx(8 * parameters, rel=0.01)


@pytest.mark.parametrize("name", ["llama-3.1-405b", "llama-3.1-70b", "mixtral-8x22b"])
def test_full_recompute_makes_hfu_eight_sixths_of_mfu(name: str) -> None:
    """Chowdhery 2022 (arXiv 2204.02311), appendix B. The head is not run again, so it comes close from below."""
    model = load_model(name)
    needed = model_flops_per_token(model, 4096)
    hfu_over_mfu = (needed + recomputed_flops_per_token(model, 4096, share=1.0)) / needed
    assert 8 / 6 * 0.985 < hfu_over_mfu < 8 / 6


def test_llama_3_pretraining_budget() -> None:
    """Primer, "Case study: Llama 3 405B": 3.8e25 FLOPs for 15.6T tokens, about 67 days at 400 TFLOP/s on 16,384."""
    model = load_model("llama-3.1-405b")
    # Counting the parameters that enter a product or all of them changes the second digit by less than one.
    for parameters in (model.params.total, matmul_params(model)):
        flops = 6 * parameters * 15.6e12
        assert round(flops / 1e25, 1) == 3.8
        assert flops / (16384 * 400e12) / 86400 == pytest.approx(67, abs=0.5)


@pytest.mark.parametrize(
    "mesh",
    [
        {"tp": 8, "pp": 2, "dp": 1},
        {"tp": 2, "pp": 8, "dp": 1},
        {"dp": 16, "zero_stage": 3},
        {"tp": 8, "dp": 2, "zero_stage": 3},
    ],
    ids=str,
)
def test_state_of_a_70b_model_on_16_devices(mesh: dict[str, int]) -> None:
    """18 bytes a parameter with 32-bit gradients: 73.9 GiB on each of 16 devices, however it is cut, as a mean."""
    found = broken_down(scenario_of("llama-3.1-70b", devices=16, global_batch_size=16), plan_row(16, **mesh))
    state = sum(found.memory[term] for term in ("parameters", "gradients", "optimizer"))
    assert np.mean(state) / GIB == pytest.approx(73.9, abs=0.1)


def test_one_token_of_a_mixture_visits_few_of_its_parameters() -> None:
    """DeepSeek-V3 (arXiv 2412.19437): 37B of 671B parameters are active, and only those count as FLOPs."""
    model = load_model("deepseek-v3")
    assert model_flops_per_token(model, SHORT) == pytest.approx(6 * 37e9, rel=0.04)
