"""Context parallelism: rings and when attention hides them, zig-zag, gathers, Ulysses, and both together."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor

import numpy as np
import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.facts import Facts
from costmodel.rules.context_parallel import hybrid_degrees
from costmodel.scenario import Scenario
from costmodel.terms.attention import ATTENTION
from costmodel.terms.communication import A2A, ALL_GATHER, CONTEXT_PARALLEL, HYBRID, P2P
from planner.search.answer import answer_to
from planner.search.choices import option_columns
from planner.search.eliminate import eliminate
from planner.search.space import mesh_candidates
from tests.plans import finished, slugs
from tests.scenarios import axes_of, broken_down, ideal, lossless, plan_row, scenario_of
from tests.searches import request_of


def facts_of(seq_len: int, model: str = "llama-3-8b") -> Facts:
    """H100s by eight on NVLink; links and kernels at their rated speed, without latency."""
    facts = Facts.of(scenario_of(model, "dgx-h100", 64, 64, seq_len))
    return replace(lossless(facts), cal=replace(ideal(facts).cal, **vars_of_links(lossless(facts))))


def vars_of_links(facts: Facts) -> dict[str, np.ndarray]:
    return {name: getattr(facts.cal, name) for name in ("scale_up_efficiency", "scale_out_efficiency")}


def exchanged(facts: Facts, cp: int, kind: int, inner: int = 1, tp: int = 1) -> dict[str, float]:
    axes = axes_of(tp=tp, cp=cp, cp_comm_type=kind, cp_a2a_degree=inner, micro_batch_size=1)
    return {name: float(np.ravel(value)[0]) for name, value in CONTEXT_PARALLEL.evaluate(facts, axes).items()}


def core_s(facts: Facts, cp: int, inner: int = 1, balanced: int = 1) -> float:
    axes = axes_of(tp=1, cp=cp, cp_balanced=balanced, cp_a2a_degree=inner, micro_batch_size=1)
    return float(ATTENTION.evaluate(facts, axes)["attention_core_s"][0])


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_a_ring_is_hidden_from_a_sequence_length_on(cp: int) -> None:
    """Liu 2023 (arXiv 2310.01889), section 3: block compute grows with (s/c)^2 a, a K/V block with s/c k.

    c - 1 blocks of ``s/c 2 k d e`` bytes at B against ``s/c s/2 4 a d`` FLOPs at P: hidden iff
    ``s/c >= (1 - 1/c) (k/a) e P/B``: 1,099 tokens (1 - 1/c) with 8 KV heads of 32, in 16 bits, on an H100 with NVLink.
    """
    facts = facts_of(8192)
    peak, link = float(facts.hardware.attention_peak_flops), float(facts.hardware.tier_bandwidth[0])
    per_rank = (1 - 1 / cp) * (8 / 32) * 2 * peak / link
    assert per_rank == pytest.approx(1099 * (1 - 1 / cp), rel=1e-3)
    for seq_len, hidden in ((floor(per_rank * cp) - 1, False), (ceil(per_rank * cp) + 1, True)):
        longer = replace(facts, work=replace(facts.work, seq_len=np.asarray(float(seq_len))))
        ring = exchanged(longer, cp, P2P)["cp_hideable_s"]
        assert (ring <= core_s(longer, cp)) is hidden
    # Queries of all heads against the K/V of few: with as many KV heads as heads it takes four times the length.


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_contiguous_pieces_make_the_last_rank_the_slowest(cp: int) -> None:
    """2 - 1/c times the mean: what the causal mask leaves of the last of c pieces, counted."""
    facts, tokens = facts_of(4096), 64
    mask = np.tril(np.ones((tokens, tokens)))
    pieces = mask.reshape(cp, tokens // cp, tokens).sum(axis=(1, 2))
    assert pieces.max() / pieces.mean() == pytest.approx(2 - 1 / cp, rel=0.02)
    assert core_s(facts, cp, balanced=0) / core_s(facts, cp) == pytest.approx(2 - 1 / cp)
    # An early and a late piece each: all ranks are as fast as the mean; Ulysses sees the whole sequence anyway.
    halves = mask.reshape(2 * cp, tokens // cp // 2, tokens).sum(axis=(1, 2))
    assert len({float(halves[rank] + halves[-1 - rank]) for rank in range(cp)}) == 1
    assert core_s(facts, cp, inner=cp, balanced=0) == core_s(facts, cp, inner=cp)


def test_a_window_leaves_less_to_balance() -> None:
    full = facts_of(8192)
    windowed = replace(full, model=replace(full.model, window=np.asarray(1024.0), window_share=np.asarray(1.0)))
    assert core_s(windowed, 4, balanced=0) == pytest.approx(core_s(windowed, 4))


def test_ulysses_moves_as_much_when_sequence_and_ranks_grow_together() -> None:
    """Jacobs 2023 (arXiv 2309.14509), section 3.2: but for (c - 1)/c; a ring has more hops."""
    ulysses, ring, gather = [], [], []
    for times in (1, 2, 4):
        facts, cp = facts_of(8192 * times), 2 * times
        ulysses.append(exchanged(facts, cp, A2A, inner=cp)["cp_exposed_s"] * cp / (cp - 1))
        ring.append(exchanged(facts, cp, P2P)["cp_hideable_s"] / (cp - 1))
        gather.append(exchanged(facts, cp, ALL_GATHER)["cp_exposed_s"] / (cp - 1))
    for series in (ulysses, ring, gather):
        np.testing.assert_allclose(series, series[0], rtol=1e-9)


def test_a_gather_goes_twice_backward_and_a_ring_takes_gradients_along() -> None:
    """K and V are gathered again and their gradients scattered (Llama 3, arXiv 2407.21783, section 3.3.2)."""
    gathered, traded = exchanged(facts_of(8192), 4, ALL_GATHER), exchanged(facts_of(8192), 4, A2A, inner=4)
    assert gathered["cp_exposed_backward_s"] == 2 * gathered["cp_exposed_s"] > 0
    assert traded["cp_exposed_backward_s"] == traded["cp_exposed_s"] > 0


def test_both_together_lie_between_their_parts() -> None:
    """Fang 2024 (arXiv 2405.07719), section 3: Ulysses inside a node cuts a ring across nodes to c/u - 1 hops."""
    facts = facts_of(32768)
    ring, traded = exchanged(facts, 32, P2P), exchanged(facts, 4, A2A, inner=4)
    both = exchanged(facts, 32, HYBRID, inner=4)
    hop = exchanged(facts, 32, P2P)["cp_hideable_s"] / 31
    assert both["cp_hideable_s"] == pytest.approx(7 * hop)
    # The exchange is that of four ranks with as many tokens each.
    tokens = 32768 / 32
    assert both["cp_exposed_s"] == pytest.approx(traded["cp_exposed_s"] * tokens / (32768 / 4))
    assert 0 < both["cp_hideable_s"] < ring["cp_hideable_s"]
    assert both["cp_buffer_bytes"] > ring["cp_buffer_bytes"]


def test_fewer_kv_heads_than_ranks_are_sent_more_than_once() -> None:
    """DeepSpeed repeats KV heads (ulysses_sp.py: sp % K == 0): 16 ranks need 16 copies of 8, 8 ranks none."""
    facts = facts_of(32768)
    sizes = {cp: exchanged(facts, cp, A2A, inner=cp)["cp_buffer_bytes"] * cp for cp in (4, 8, 16)}
    assert sizes[4] == sizes[8]
    # Q and the output are 32 heads each, K and V 8 each, or 16 once repeated.
    assert sizes[16] / sizes[8] == pytest.approx((64 + 32) / (64 + 16))


def test_how_many_trade_heads_where_a_plan_does_not_say() -> None:
    """The most that divide 32 heads and 8 KV heads inside 8 devices on NVLink; latent attention has no KV heads."""
    scenario = scenario_of("llama-3-8b")
    asked = [(1, 16), (2, 16), (8, 16), (1, 6), (1, 9), (1, 2)]
    found = hybrid_degrees(scenario, *(np.array(column) for column in zip(*asked, strict=True)))
    # At tp 8 nothing divides 8 KV heads any more: the fewest stand, for the rule to name; 2 has nothing between.
    assert found.tolist() == [8, 4, 2, 2, 3, 1]
    # A cp far beyond any cluster is not factored.
    assert int(hybrid_degrees(scenario, np.array(1), np.array(10**15))) == 8
    deepseek = hybrid_degrees(scenario_of("deepseek-v2-lite"), np.array(1), np.array(64))
    assert int(deepseek) == 8


def test_a_search_takes_that_degree_and_a_pin_another() -> None:
    scenario = scenario_of("llama-3-8b", devices=32, global_batch_size=32, seq_len=65536)
    for pins, degree in (((), 8), (("cp_a2a_degree=4",), 4)):
        request = request_of(scenario, ("cp=16", "cp_comm_type=a2a+p2p", "tp=1", *pins))
        meshes = mesh_candidates(request)
        assert eliminate(request, meshes).legal.any()
        columns = {axis: column[:1] for axis, column in meshes.items()} | {
            "cp_comm_type": np.array([HYBRID]),
            "options": np.array([0]),
        }
        assert option_columns(request, columns, ("cp_a2a_degree",))["cp_a2a_degree"].tolist() == [degree]


def test_a_pin_of_several_degrees_is_searched() -> None:
    scenario = scenario_of("llama-3-8b", devices=16, global_batch_size=16, seq_len=65536)
    found = answer_to(request_of(scenario, ("cp=8", "tp=1", "cp_comm_type=a2a+p2p", "cp_a2a_degree=2,4"), top=2))
    assert {entry["plan"]["cp_a2a_degree"] for entry in found["plans"]} <= {2, 4}
    assert found["status"] == "optimal"


def under(framework: str, **how: int | str) -> Scenario:
    scenario = scenario_of("llama-3-8b", devices=64, global_batch_size=64, seq_len=32768, **how)  # type: ignore[arg-type]
    return scenario.model_copy(update={"framework": load_framework(framework)})


REFUSED = [
    ("megatron-core", {"cp": 16, "cp_comm_type": A2A}, "a2a_kv_heads_divisible_by_cp"),
    ("megatron-core", {"cp": 64, "cp_comm_type": A2A}, "a2a_heads_divisible_by_cp"),
    ("megatron-core", {"cp": 32, "cp_comm_type": HYBRID, "cp_a2a_degree": 16}, "hybrid_cp_kv_heads_divisible"),
    ("megatron-core", {"cp": 8, "cp_comm_type": HYBRID, "cp_a2a_degree": 8}, "cp_a2a_degree_fits_cp"),
    ("megatron-core", {"cp": 2, "cp_balanced": 0}, "cp_balance_known"),
    ("deepspeed", {"cp": 64, "cp_comm_type": A2A}, "a2a_heads_divisible_by_cp"),
    ("accelerate", {"cp": 64, "cp_comm_type": A2A}, "a2a_heads_divisible_by_cp"),
    ("torchtitan", {"cp": 8, "cp_comm_type": HYBRID, "cp_a2a_degree": 2}, "cp_comm_type_known"),
    ("maxtext", {"cp": 8, "cp_comm_type": HYBRID, "cp_a2a_degree": 2}, "usp_needs_tpu"),
]


@pytest.mark.parametrize(("framework", "axes", "rule"), REFUSED)
def test_what_can_not_be_is_refused_by_name(framework: str, axes: dict[str, int], rule: str) -> None:
    """In the judge of one plan and in what the search eliminates: Llama 3 8B has 32 heads and 8 KV heads."""
    scenario = under(framework)
    row = plan_row(64, **({"dp": 64 // axes["cp"], "zero_stage": 0} | axes))
    assert rule in slugs(finished(scenario, row), scenario)
    words = {"cp_comm_type": ("p2p", "all_gather", "a2a", "a2a+p2p"), "cp_balanced": ("false", "true")}
    pins = [f"{axis}={words[axis][code] if axis in words else code}" for axis, code in axes.items()]
    request = request_of(scenario, [*pins, "tp=1", "pp=1"])
    assert eliminate(request, mesh_candidates(request)).counts.get(rule, 0) > 0


def test_balance_is_a_choice_where_a_framework_has_the_switch() -> None:
    scenario = under("torchtitan")
    rows = [plan_row(64, cp=4, dp=16, zero_stage=3, cp_comm_type=ALL_GATHER, cp_balanced=code) for code in (1, 0)]
    assert all(not slugs(finished(scenario, row), scenario) for row in rows)
    balanced, contiguous = broken_down(scenario, *rows).time["attention"]
    assert balanced < contiguous < balanced * (2 - 1 / 4)
