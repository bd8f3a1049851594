"""MFU and HFU under each of the definitions that are in use, against the papers that state them."""

from __future__ import annotations

import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.flops import (
    attention_flops_per_token,
    full_attention_flops_per_token,
    matmul_params,
    model_flops_per_token,
    recomputed_flops_per_token,
    selectively_recomputed_flops_per_token,
)
from costmodel.scenario import Scenario
from costmodel.spec.model import ModelSpec
from costmodel.utilisation import Utilisation, utilisation
from tests.scenarios import scenario_of

LLAMA = "llama-3.1-405b"


def used(scenario: Scenario, step_time_s: float = 10.0, again: float = 0.0) -> Utilisation:
    return utilisation(scenario, step_time_s=step_time_s, devices=scenario.devices, recomputed_flops_per_token=again)


def peak_of(scenario: Scenario, precision: str) -> float:
    return scenario.cluster.accelerator.peak_flops_per_s[precision]  # type: ignore[index]  # a word of the catalog


@pytest.mark.parametrize("name", [LLAMA, "llama-3-8b", "gpt2"])
def test_full_attention_is_palms_formula(name: str) -> None:
    """``6 N + 12 L H Q T`` FLOPs a token (Chowdhery 2022, arXiv 2204.02311, appendix B)."""
    scenario = scenario_of(name, seq_len=1024)
    model = scenario.model
    per_token = 6 * matmul_params(model) + 12 * model.num_layers * model.num_heads * model.head_dim * 1024
    found = used(scenario)
    tokens_per_s = scenario.workload.tokens_per_step / 10.0
    expected = tokens_per_s * per_token / (scenario.devices * peak_of(scenario, "bf16"))
    assert found.mfu_full_attention == pytest.approx(expected)


def test_full_attention_and_full_recompute_are_megatrons_formula() -> None:
    """``96 B s l h^2 (1 + s/6h + V/16lh)`` FLOPs a step (Narayanan 2021, arXiv 2104.04473, equation 3), for its 1T
    model; biases, which are no products in it, and the head, which is not run again, are all that differ.
    """
    layers, hidden, vocab, seq_len = 128, 25600, 51200, 2048
    model = ModelSpec(
        name="gpt-1t",
        num_layers=layers,
        hidden_size=hidden,
        num_heads=160,
        num_kv_heads=160,
        head_dim=160,
        ffn_hidden_size=4 * hidden,
        vocab_size=vocab,
        gated_mlp=False,
        tie_word_embeddings=True,
    )
    expected = 96 * layers * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden))
    whole_scores = full_attention_flops_per_token(model, seq_len)
    forward_again = 2 * (matmul_params(model) - vocab * hidden) + whole_scores
    assert 6 * matmul_params(model) + 3 * whole_scores + forward_again == pytest.approx(expected, rel=1e-3)


def test_the_causal_half_is_half_of_what_palm_counts() -> None:
    model = load_model(LLAMA)
    assert attention_flops_per_token(model, 8192) == full_attention_flops_per_token(model, 8192) / 2


@pytest.mark.parametrize(
    ("devices", "batch", "seq_len", "flops_per_s", "published"),
    [(8192, 2048, 8192, 430e12, 0.43), (16384, 2048, 8192, 400e12, 0.41), (16384, 128, 131072, 380e12, 0.38)],
)
def test_llama_3_published_shares_are_its_rates_over_the_bf16_peak(
    devices: int, batch: int, seq_len: int, flops_per_s: float, published: float
) -> None:
    """Table 4 of arXiv 2407.21783: 430, 400, 380 TFLOP/s a device are its 43, 41, 38 %, to a point of rounding."""
    scenario = scenario_of(LLAMA, "dgx-h100", devices, batch, seq_len)
    per_step = model_flops_per_token(scenario.model, seq_len) * scenario.workload.tokens_per_step
    found = used(scenario, step_time_s=per_step / (devices * flops_per_s))
    assert found.model_flops_per_s_per_device == pytest.approx(flops_per_s)
    assert found.mfu == pytest.approx(published, abs=0.01)
    assert (found.peak, found.mfu_bf16_peak) == ("bf16", found.mfu)


def test_the_conventions_part_as_sequences_grow() -> None:
    """What causal attention adds to the parameters' FLOPs: 4 % at 8,192 tokens, two thirds at 131,072."""
    short, long = (used(scenario_of(LLAMA, "dgx-h100", 16384, 128, seq_len)) for seq_len in (8192, 131072))
    for found, extra in ((short, 0.042), (long, 0.67)):
        assert found.mfu / found.mfu_parameters_only - 1 == pytest.approx(extra, rel=0.05)
        assert found.mfu_full_attention - found.mfu == pytest.approx(found.mfu - found.mfu_parameters_only)


def test_full_recompute_makes_hfu_eight_sixths_of_mfu() -> None:
    scenario = scenario_of(LLAMA)
    again = recomputed_flops_per_token(scenario.model, 8192, share=1.0)
    found = used(scenario, again=again)
    assert found.hfu / found.mfu == pytest.approx(8 / 6, rel=0.005)
    assert found.hardware_flops_per_token == found.model_flops_per_token + again


def test_selective_recompute_counts_the_products_of_its_modules() -> None:
    """The core of attention adds its forward FLOPs; norms and activation functions add nothing."""
    model = load_model(LLAMA)
    assert selectively_recomputed_flops_per_token(model, 8192, ("layernorm", "moe_act")) == 0
    core = selectively_recomputed_flops_per_token(model, 8192, ("core_attn",))
    assert core == attention_flops_per_token(model, 8192)
    # The core of attention and all MLPs, and the projections that are left: a whole forward pass of the layers.
    mlps = selectively_recomputed_flops_per_token(model, 8192, ("mlp",))
    params = model.params
    projections = 2 * params.num_layers * (params.attention_per_layer + params.norms_per_layer) + 2 * params.final_norm
    assert core + mlps + projections == pytest.approx(recomputed_flops_per_token(model, 8192, share=1.0), rel=1e-9)


def test_experts_contain_the_shared_ones_and_latent_attention_its_up_projections() -> None:
    model = load_model("deepseek-v3")
    params = model.params
    moe = selectively_recomputed_flops_per_token(model, 4096, ("moe",))
    assert moe == selectively_recomputed_flops_per_token(model, 4096, ("moe", "shared_experts"))
    assert moe == 2 * params.num_moe_layers * params.expert_mlp(params.top_k)
    # arXiv 2412.19437, section 4.2: 128 heads, latents of 1536 and 512, heads of 128 + 64 and 128.
    up = 61 * 2 * 128 * (1536 * 192 + 512 * 256)
    assert selectively_recomputed_flops_per_token(model, 4096, ("mla_up_proj",)) == up


def test_the_same_speed_looks_worse_against_the_fp8_peak() -> None:
    """Primer, "MFU and HFU": always state the reference precision. On H100 the peaks are 2 to 1."""
    bf16, fp8 = (used(scenario_of(LLAMA, precision=precision)) for precision in ("bf16", "fp8"))
    assert (bf16.peak, fp8.peak) == ("bf16", "fp8")
    assert fp8.mfu == pytest.approx(bf16.mfu / 2, rel=1e-3)
    assert fp8.mfu_bf16_peak == pytest.approx(bf16.mfu)


def test_a_device_without_bf16_has_no_utilisation_of_it() -> None:
    found = used(scenario_of("gpt2", "dgx1-v100-32gb", 8, 64, 1024, precision="fp16"))
    assert found.mfu_bf16_peak is None
    assert found.peak == "fp16"


def test_rates_of_the_job_and_of_a_device() -> None:
    scenario = scenario_of(LLAMA, devices=64, global_batch_size=256, seq_len=8192)
    found = used(scenario, step_time_s=4.0)
    assert found.tokens_per_s == 256 * 8192 / 4.0
    assert found.model_flops_per_s_per_device * 64 == pytest.approx(found.tokens_per_s * found.model_flops_per_token)
    assert found.model_flops_per_step == found.model_flops_per_token * 256 * 8192
