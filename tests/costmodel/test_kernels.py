"""Seconds of single kernels: measured GEMMs, counted attention, and the limits of the roofline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.arrays import Num, num
from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.facts import Facts
from costmodel.flops import attention_flops_per_token, mean_attended_tokens
from costmodel.kernels import attention_core_flops, attention_core_s, gemm_s, memory_bound_s
from costmodel.terms.attention import ATTENTION
from costmodel.terms.ends import ENDS
from costmodel.terms.mlp import DENSE_MLP, EXPERTS
from costmodel.terms.state import PARAMETERS
from costmodel.terms.term import Term
from tests.scenarios import axes_of, ideal, recalibrated, scenario_of

H100 = Facts.of(scenario_of(cluster="dgx-h100", precision="fp16"))
A100 = Facts.of(scenario_of(cluster="dgx-a100-80gb", precision="fp16"))

# m, n, k and achieved TFLOP/s of single fp16 GEMMs: microsoft/vidur @7d475133,
# data/profiling/compute/{h100,a100}/{Qwen/Qwen-72B, meta-llama/Llama-2-70b-hf, meta-llama/Llama-2-7b-hf}/mlp.csv
MEASURED = {
    "h100": (
        H100,
        [
            (4096, 49152, 8192, 688.0),
            (2048, 57344, 8192, 704.3),
            (2048, 8192, 24576, 747.3),
            (4096, 24576, 8192, 717.4),
            (4096, 8192, 8192, 702.1),
            (4096, 4096, 4096, 712.1),
            (2048, 8192, 4096, 664.0),
            (4096, 8192, 2048, 672.1),
            (1024, 12288, 8192, 706.0),
        ],
        0.12,
    ),
    "a100": (
        A100,
        [
            (4096, 49152, 8192, 234.1),
            (2048, 57344, 8192, 237.5),
            (2048, 8192, 24576, 232.1),
            (4096, 24576, 8192, 237.5),
            (4096, 8192, 8192, 231.3),
            (4096, 4096, 4096, 224.9),
            (2048, 8192, 4096, 204.2),
            (2048, 8192, 2048, 220.3),
            (1024, 12288, 8192, 221.0),
        ],
        0.20,
    ),
}


@pytest.mark.parametrize("device", sorted(MEASURED))
def test_large_measured_gemms(device: str) -> None:
    """Within 12 % on H100. The A100 parameters come from training runs and are a tenth faster than these kernels.

    Over all shapes of the source, thin shards included, the median error is 9 % on both.
    """
    facts, rows, tolerance = MEASURED[device]
    m, n, k, tflops = num(rows).T
    measured = 2 * m * n * k / (tflops * 1e12)
    error = gemm_s(facts, m, n, k) / measured - 1
    assert np.abs(error).max() < tolerance, error.round(3)


def test_a_large_aligned_gemm_runs_at_its_share_of_the_peak() -> None:
    size = num(2**17)
    ideal = 2 * size**3 / (H100.hardware.peak_flops * H100.cal.gemm_efficiency)
    assert gemm_s(H100, size, size, size) == pytest.approx(ideal, rel=3e-3)


def test_a_thin_gemm_is_bound_by_memory() -> None:
    n = k = num(16384)
    moved = 2 * (k + k * n + n)
    bound = moved / (H100.hardware.memory_bandwidth * H100.cal.pointwise_efficiency)
    fast = recalibrated(H100, gemm_mn_half=0, gemm_launch_s=0)
    assert gemm_s(fast, num(1), n, k) == pytest.approx(bound)


@pytest.mark.parametrize("shape", [(0, 64, 64), (64, 0, 64), (64, 64, 0)])
def test_nothing_takes_no_time(shape: tuple[int, int, int]) -> None:
    assert gemm_s(H100, *map(num, shape)) == 0


@pytest.mark.parametrize(("n", "k"), [(4096 + 4, 4096), (4096, 4096 + 4)])
def test_a_dimension_off_the_alignment_is_slower(n: int, k: int) -> None:
    m, factor = num(8192), H100.cal.misaligned_factor
    ragged, aligned = gemm_s(H100, m, num(n), num(k)), gemm_s(H100, m, num(4096 + 64), num(4096 + 64))
    assert aligned < ragged < aligned * factor
    assert gemm_s(H100, m + 1, num(4096), num(4096)) < 1.01 * gemm_s(H100, m, num(4096), num(4096))


def test_half_a_tile_is_no_misalignment() -> None:
    """microsoft/vidur @7d475133, A100, Llama-2-7B over 8: 1376 wide shards reach what 1280 and 1536 wide ones do."""
    rates = [2 * 4096 * 4096 * n / gemm_s(A100, num(4096), num(n), num(4096)) for n in (1280, 1376, 1536)]
    assert rates == sorted(rates)


multiples = st.integers(1, 512).map(lambda i: num(64 * i))


@given(m=multiples, n=multiples, k=multiples, step=st.integers(1, 64))
def test_a_larger_gemm_never_takes_less(m: Num, n: Num, k: Num, step: int) -> None:
    base, more = gemm_s(H100, m, n, k), 64 * step
    assert gemm_s(H100, m + more, n, k) >= base
    assert gemm_s(H100, m, n + more, k) >= base
    assert gemm_s(H100, m, n, k + more) >= base


@given(m=multiples, n=multiples, k=multiples)
def test_one_gemm_never_takes_longer_than_its_two_halves(m: Num, n: Num, k: Num) -> None:
    """Cutting a matrix never pays on one device, or tensor parallelism would be free."""
    assert gemm_s(H100, m, 2 * n, k) <= 2 * gemm_s(H100, m, n, k)
    assert gemm_s(H100, m, n, 2 * k) <= 2 * gemm_s(H100, m, n, k)


@pytest.mark.parametrize(("model", "seq_len"), [("llama-3-8b", 4096), ("mistral-7b-v0.1", 16384), ("gemma-2-9b", 8192)])
def test_attended_tokens_are_those_of_the_mask(model: str, seq_len: int) -> None:
    """Counted row by row over the layers with and without a sliding window; the closed form leaves out the diagonal."""
    spec = load_model(model)
    position = np.arange(1, seq_len + 1)
    full = position.mean()
    windowed = np.minimum(position, spec.sliding_window or seq_len).mean()
    sliding = spec.num_sliding_layers
    expected = (sliding * windowed + (spec.num_layers - sliding) * full) / spec.num_layers
    window, share = num(spec.sliding_window or seq_len), num(sliding / spec.num_layers)
    assert mean_attended_tokens(num(seq_len), window, share) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("model", model_names())
def test_attention_is_priced_on_the_flops_that_utilisation_counts(model: str) -> None:
    spec = load_model(model)
    facts = Facts.of(scenario_of(model, seq_len=8192))
    priced_flops = spec.num_attention_layers * attention_core_flops(facts, num(1), num(spec.num_heads))
    assert priced_flops == pytest.approx(attention_flops_per_token(spec, 8192), rel=1e-12)


def test_causal_attention_counts_half_of_the_scores() -> None:
    """Dao 2023 (arXiv 2307.08691), section 4.1: ``4 s^2 d a`` forward FLOPs for a whole matrix, half of it causal."""
    facts = Facts.of(scenario_of("llama-3-8b", seq_len=4096))
    assert attention_core_flops(facts, num(4096), num(32)) == pytest.approx(4 * 4096**2 * 128 * 32 / 2)


def test_attention_backward_is_five_gemms_to_two() -> None:
    forward, backward = attention_core_s(H100, num(8192), num(8))
    assert backward / forward == pytest.approx(2.5)


def test_a_core_that_is_not_fused_computes_the_whole_score_matrix_and_moves_it() -> None:
    """Twice the causal FLOPs; Korthikanti 2022 (arXiv 2205.05198), section 4.1 has the tensors."""
    unfused = scenario_of("gpt2", seq_len=1024).model_copy(update={"fused_attention": False})
    facts, tokens, heads = Facts.of(unfused), num(4096), num(12)
    whole = ideal(facts)
    forward, backward = attention_core_s(whole, tokens, heads)
    flops = 2 * attention_core_flops(whole, tokens, heads)
    assert forward == pytest.approx(flops / float(whole.hardware.attention_peak_flops))
    assert backward == pytest.approx(2 * forward)
    moved = 4096 * 1024 * 12 * 13 / (3.35e12 * float(facts.cal.pointwise_efficiency))
    assert attention_core_s(facts, tokens, heads)[0] > moved > attention_core_s(H100, tokens, heads)[0]


@pytest.mark.parametrize(("heads", "odd"), [(64, False), (96, False), (128, True)])
def test_heads_off_the_alignment_leave_the_matrix_units(heads: int, odd: bool) -> None:
    """A 13,824 wide layer over 4 devices with heads of 216, 144 and 108: the products of the last at the fp32 rate."""
    spec = load_model("gpt2").model_copy(update={"num_heads": heads, "head_dim": 13824 // heads})
    scenario = scenario_of("gpt2", cluster="dgx-a100-80gb", seq_len=2048)
    facts = Facts.of(scenario.model_copy(update={"model": spec, "fused_attention": False}))
    forward, _ = attention_core_s(ideal(facts), num(4096), num(heads / 4))
    flops = 2 * attention_core_flops(facts, num(4096), num(heads / 4))
    assert flops / forward == pytest.approx(19.5e12 if odd else 312e12)


def test_memory_bound_pass_moves_its_bytes_at_the_reachable_bandwidth() -> None:
    reachable = H100.hardware.memory_bandwidth * H100.cal.pointwise_efficiency
    assert memory_bound_s(H100, num(1e9)) == pytest.approx(1e9 / reachable)


def test_a_slower_framework_slows_every_kernel_alike() -> None:
    slow = recalibrated(H100, compute_multiplier=1.25)
    size = num(4096)
    pairs = [
        (gemm_s(slow, size, size, size), gemm_s(H100, size, size, size)),
        (attention_core_s(slow, size, num(8))[0], attention_core_s(H100, size, num(8))[0]),
        (memory_bound_s(slow, size), memory_bound_s(H100, size)),
    ]
    for slower, plain in pairs:
        assert slower / plain == pytest.approx(1.25)


# What the terms put into kernels, on a device that only computes: FLOPs, and bytes of the passes.


def flops_of(facts: Facts, term: Term, output: str, **axes: int) -> float:
    """FLOPs behind an output in seconds, for one micro-batch of one layer on one rank."""
    degrees = {"tp": 1, "cp": 1, "ep": 1, "etp": 1, "micro_batch_size": 1} | axes
    return float(term.evaluate(ideal(facts), axes_of(**degrees))[output][0] * facts.hardware.peak_flops)


@pytest.mark.parametrize("model", model_names())
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_linear_layers_multiply_every_token_with_every_parameter_of_the_rank(model: str, tp: int) -> None:
    """``2 * tokens * parameters``, the parameters being those that take up memory; biases are not multiplied."""
    scenario = scenario_of(model, seq_len=1024)
    facts, params = Facts.of(scenario), scenario.model.params
    held = PARAMETERS.evaluate(facts, axes_of(tp=tp, ep=1, etp=1))
    attention = float(held["dense_layer_params"][0]) - params.norms_per_layer
    attention -= float(facts.model.dense_mlp_params) / tp
    assert flops_of(facts, ATTENTION, "attention_linear_s", tp=tp) == pytest.approx(2 * 1024 * attention, rel=2e-3)
    mlp = flops_of(facts, DENSE_MLP, "dense_mlp_s", tp=tp)
    assert mlp == pytest.approx(2 * 1024 * float(facts.model.dense_mlp_params) / tp, rel=2e-3)
    head = flops_of(facts, ENDS, "head_s", tp=tp)
    assert head == pytest.approx(2 * 1024 * float(held["table_params"][0]))


@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "gpt-oss-20b"])
@pytest.mark.parametrize(("tp", "ep", "etp"), [(1, 1, 1), (1, 8, 1), (2, 8, 1), (4, 2, 4), (2, 4, 2)])
def test_experts_multiply_every_token_with_the_parameters_it_visits(model: str, tp: int, ep: int, etp: int) -> None:
    """Whatever ep and etp: top_k experts, the shared ones and the router, for the tokens of one device."""
    scenario = scenario_of(model, seq_len=4096)
    moe, params = scenario.model.moe, scenario.model.params
    assert moe is not None
    visited = moe.top_k * params.per_expert + params.shared_expert_per_layer + params.router_per_layer
    found = flops_of(Facts.of(scenario), EXPERTS, "expert_mlp_s", tp=tp, ep=ep, etp=etp)
    assert found == pytest.approx(2 * 4096 / tp * visited, rel=3e-3)


@pytest.mark.parametrize(
    ("streams", "ep", "starts"), [(None, 1, 1), (None, 8, 1), (1, 1, 64), (1, 8, 8), (4, 1, 16), (4, 8, 2), (4, 32, 1)]
)
def test_experts_start_together_or_one_by_one_on_each_stream(streams: int | None, ep: int, starts: int) -> None:
    """A start takes a second and nothing else does: two products of experts, two of shared ones, the router's."""
    scenario = scenario_of("deepseek-v2-lite", seq_len=4096, expert_streams=streams)
    facts = recalibrated(ideal(Facts.of(scenario)), gemm_launch_s=1.0)
    found = EXPERTS.evaluate(facts, axes_of(tp=1, cp=1, ep=ep, etp=1, micro_batch_size=1))
    assert float(found["expert_mlp_s"][0]) == pytest.approx(2 * starts + 2 + 1, rel=0.01)


def test_passes_of_a_layer_move_what_they_read_and_write() -> None:
    """Llama 3 8B, 2 bytes: two norms of 2 tensors, two sums of 3, Q and K turned in place, gate and up to a product."""
    facts = Facts.of(scenario_of("llama-3-8b", seq_len=8192))
    rate = facts.hardware.memory_bandwidth * facts.cal.pointwise_efficiency
    for tp in (1, 4):
        degrees = axes_of(tp=tp, cp=1, ep=1, etp=1, micro_batch_size=1)
        found = ATTENTION.evaluate(facts, degrees)
        assert found["norm_s"] * rate == pytest.approx(8192 * 2 * 2 * 4096 * 2 / tp)
        rotary = 2 * (4096 + 1024)
        assert found["residual_s"] * rate == pytest.approx(8192 * (2 * 3 * 4096 + rotary) * 2 / tp)
        assert DENSE_MLP.evaluate(facts, degrees)["dense_activation_s"] * rate == pytest.approx(
            8192 * 3 * 14336 * 2 / tp
        )


def test_passes_that_are_not_fused_move_every_intermediate() -> None:
    """As above: 18 tensors for each norm and for Q and K; the function of the gate is written and read again."""
    scenario = scenario_of("llama-3-8b", seq_len=8192).model_copy(update={"fused_pointwise": False})
    facts = recalibrated(Facts.of(scenario), unfused_norm_tensors=18.0, unfused_rotary_tensors=18.0)
    degrees = axes_of(tp=1, cp=1, ep=1, etp=1, micro_batch_size=1)
    rate = facts.hardware.memory_bandwidth * facts.cal.pointwise_efficiency
    found = ATTENTION.evaluate(facts, degrees) | DENSE_MLP.evaluate(facts, degrees)
    assert found["norm_s"] * rate == pytest.approx(8192 * 2 * 18 * 4096 * 2)
    assert found["residual_s"] * rate == pytest.approx(8192 * (2 * 3 * 4096 + 18 * (4096 + 1024)) * 2)
    assert found["dense_activation_s"] * rate == pytest.approx(8192 * 5 * 14336 * 2)


def test_pytorch_has_a_kernel_of_layer_norm() -> None:
    degrees = axes_of(tp=1, cp=1, ep=1, etp=1, micro_batch_size=1)
    scenario = scenario_of("opt-175b", seq_len=2048)
    assert scenario.model.norm_bias
    unfused = scenario.model_copy(update={"fused_pointwise": False})
    one, other = (ATTENTION.evaluate(Facts.of(s), degrees)["norm_s"] for s in (scenario, unfused))
    assert one == other


def test_the_loss_moves_its_bytes_for_every_logit() -> None:
    facts = Facts.of(scenario_of("llama-3-8b", seq_len=8192))
    rate = facts.hardware.memory_bandwidth * facts.cal.pointwise_efficiency
    found = ENDS.evaluate(facts, axes_of(tp=1, cp=2, micro_batch_size=1))["loss_s"]
    assert found * rate == pytest.approx(4096 * 128256 * facts.cal.loss_traffic_bytes)
