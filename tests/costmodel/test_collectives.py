"""Seconds of collectives: published nccl-tests figures, the textbook formulas, and what tiers of network do."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.arrays import num
from costmodel.collectives import (
    TierCost,
    all_gather,
    all_reduce,
    all_reduce_algorithms,
    all_to_all,
    neighbours,
    reduce_scatter,
    remote_units,
    taken,
)
from costmodel.facts import Facts
from costmodel.spec.options import MOE_DISPATCHERS
from costmodel.terms.communication import (
    A2A,
    ALL_GATHER,
    CONTEXT_PARALLEL,
    P2P,
    PIPELINE_PARALLEL,
    TENSOR_PARALLEL,
)
from costmodel.terms.expert_parallel import EXPERT_PARALLEL
from costmodel.terms.term import Term
from tests.scenarios import axes_of, broken_down, by_formula, lossless, plan_row, recalibrated, scenario_of

ONE = num(1)
LARGE = num(16 * 2**30)


def facts_of(cluster: str) -> Facts:
    return Facts.of(scenario_of(cluster=cluster))


H100 = facts_of("dgx-h100")


def bus_bandwidth_gb_per_s(op: str, cluster: str, ranks: int) -> float:
    """By formula, as nccl-tests defines it: the rate at which a link would have to run in a ring without losses."""
    facts, group = by_formula(facts_of(cluster)), num(ranks)
    cost = {
        "all_reduce": lambda: all_reduce(facts, group, ONE),
        "ring": lambda: all_gather(facts, group, ONE),
        "all_to_all": lambda: all_to_all(facts, group, ONE, ONE),
    }[op]()
    passes = 2 if op == "all_reduce" else 1
    return float(passes * (ranks - 1) / ranks * LARGE / cost.seconds(LARGE)) / 1e9


# Largest messages of nccl-tests, by formula alone. stas00/ml-engineering network/README.md @744d01e1 (A100, H200 and
# B200 in one node, p6-b200 on four); NVIDIA/dgxc-benchmarking nccl/README.md @841f5466 (H100 all-reduce);
# GoogleCloudPlatform/cluster-toolkit (a3-ultragpu, a3-megagpu and a4-highgpu on two nodes); aws-samples
# awsome-distributed-training @7217859f (p5 on two, p5en on 16); a Vultr HGX B200 test report of 2026-05-18;
# oracle-quickstart/oci-gpu-quickstarts (MI300X, MI355X, B300; GB200 and GB300 in one rack and over two and three) and
# oci-hpc-oke (the slower pair of racks); coreweave/nccl-tests (a whole rack; eight nodes of H100).
PUBLISHED = [
    ("all_reduce", "dgx-a100-80gb", 8, 235),
    ("all_reduce", "dgx-h100", 8, 480),
    ("all_reduce", "dgx-h200", 4, 363),
    ("all_reduce", "dgx-h200", 5, 414),
    ("all_reduce", "p5.48xlarge", 16, 487),
    ("all_reduce", "nebius-gpu-h200-sxm", 16, 478),
    ("all_reduce", "coreweave-h100", 64, 385),
    ("all_reduce", "p5en.48xlarge", 128, 370),
    ("all_reduce", "dgx-b200", 4, 673),
    ("all_reduce", "dgx-b200", 5, 678),
    ("all_reduce", "dgx-b200", 8, 843),
    ("all_reduce", "dgx-b200", 16, 718),
    ("all_reduce", "p6-b200.48xlarge", 32, 382),
    ("all_reduce", "dgx-b300", 8, 835),
    ("all_reduce", "BM.GPU.B300.8", 16, 767),
    ("all_reduce", "mi300x-8x400g", 8, 330),
    ("all_reduce", "mi300x-8x400g", 16, 358),
    ("all_reduce", "mi355x-8x400g", 8, 409),
    ("all_reduce", "mi355x-8x400g", 16, 386),
    ("all_reduce", "mi355x-8x400g", 32, 371),
    ("all_reduce", "gb200-nvl72", 4, 663),
    ("all_reduce", "gb200-nvl72", 8, 847),
    ("all_reduce", "gb200-nvl72", 64, 892),
    ("all_reduce", "gb200-nvl72", 72, 835),
    ("all_reduce", "gb300-nvl72", 64, 930),
    ("all_reduce", "gb200-nvl72-8x400g", 128, 684),
    ("all_reduce", "gb200-nvl72", 128, 800),
    ("all_reduce", "gb200-nvl72", 192, 749),
    ("all_reduce", "gb300-nvl72", 128, 738),
    ("ring", "dgx-h200", 8, 361),
    ("ring", "a3-ultragpu-8g", 16, 329),
    ("ring", "a3-megagpu-8g", 16, 188),
    ("ring", "dgx-b200", 8, 672),
    ("ring", "dgx-b200", 8, 695),
    ("ring", "a4-highgpu-8g", 16, 366),
    ("all_to_all", "dgx-b200", 8, 673),
    ("all_to_all", "gb200-nvl72", 4, 615),
    ("all_to_all", "gb200-nvl72", 8, 662),
    ("all_to_all", "gb200-nvl72", 64, 623),
    ("all_to_all", "gb300-nvl72", 64, 667),
    ("all_to_all", "gb200-nvl72", 128, 89.7),
    ("all_to_all", "gb200-nvl72", 192, 62.5),
    ("all_to_all", "BM.GPU.B300.8", 16, 181),
    ("all_to_all", "mi355x-8x400g", 16, 91),
    ("all_to_all", "mi355x-8x400g", 32, 50.6),
]


@pytest.mark.parametrize(("op", "cluster", "ranks", "published"), PUBLISHED)
def test_published_bus_bandwidth_of_large_messages(op: str, cluster: str, ranks: int, published: float) -> None:
    assert bus_bandwidth_gb_per_s(op, cluster, ranks) == pytest.approx(published, rel=0.15)


def test_half_of_the_published_bus_bandwidths_are_met_within_four_per_cent() -> None:
    errors = [abs(bus_bandwidth_gb_per_s(*case) / published - 1) for *case, published in PUBLISHED]
    assert np.median(errors) < 0.04


def test_leaving_a_rack_costs_an_exchange_its_bandwidth_and_an_all_reduce_little() -> None:
    """GB200 NVL72, measured: all-to-all 623-667 GB/s inside, 90 and 62 over two and three; all-reduce 892, 800, 749."""
    inside, two, three = (bus_bandwidth_gb_per_s("all_to_all", "gb200-nvl72", ranks) for ranks in (72, 144, 216))
    assert 6.9 < inside / two < 14
    assert two / three == pytest.approx((2 / 1) / (3 / 2), rel=0.01)  # N / (N - 1) of N domains
    reduced = [bus_bandwidth_gb_per_s("all_reduce", "gb200-nvl72", ranks) for ranks in (64, 144)]
    assert 1.05 < reduced[0] / reduced[1] < 1.35


def test_switches_speed_up_the_all_reduce_alone() -> None:
    """NVLS, H100: 480 against 361 GB/s of a ring; all-gather and reduce-scatter stay rings."""
    assert bus_bandwidth_gb_per_s("all_reduce", "dgx-h100", 8) > 1.25 * bus_bandwidth_gb_per_s("ring", "dgx-h100", 8)
    assert not facts_of("dgx-a100-80gb").hardware.tier_in_network[0]


@pytest.mark.parametrize("ranks", [8, 64])
def test_small_messages_take_the_measured_latency(ranks: int) -> None:
    """8 H100: 14-25 us; several nodes: 31-193 us for all-reduce up to 4 KiB (nccl-tests), more over more nodes."""
    seconds = float(all_reduce(H100, num(ranks), ONE).seconds(num(4096)))
    low, high = {8: (14e-6, 60e-6), 64: (60e-6, 400e-6)}[ranks]
    assert low < seconds < high


def on_flat_links(bandwidth: float) -> Facts:
    """Every tier the same and without losses."""
    facts = lossless(H100)
    tiers = tuple(num(bandwidth) for _ in facts.hardware.tier_bandwidth)
    return replace(facts, hardware=replace(facts.hardware, tier_bandwidth=tiers))


@pytest.mark.parametrize("group", [2, 4, 8])
def test_a_ring_pass_sends_all_but_the_own_share(group: int) -> None:
    """``(N - 1)/N S/B``, the primer's form."""
    cost = all_gather(on_flat_links(100e9), num(group), ONE)
    assert cost.s_per_byte * 100e9 == pytest.approx((group - 1) / group)


def test_a_ring_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    group = num([2, 8, 16, 128])
    ring, facts = all_reduce_algorithms(H100, group, ONE)["ring"], by_formula(H100)
    scatter, gather = reduce_scatter(facts, group, ONE), all_gather(facts, group, ONE)
    assert ring.s_per_byte == pytest.approx(scatter.s_per_byte + gather.s_per_byte)
    start = np.where(group > 8, H100.cal.scale_out_latency_s, H100.cal.scale_up_latency_s)
    assert ring.latency_s == pytest.approx(scatter.latency_s + gather.latency_s - start)  # one start for both


def test_rails_carry_the_traffic_between_nodes_together() -> None:
    """A ring's edges between two nodes lie on eight links at once, or on one with one rank in a node."""
    cheap_inside = on_flat_links(50e9)
    hardware = cheap_inside.hardware
    facts = replace(cheap_inside, hardware=replace(hardware, tier_bandwidth=(num(1e15), *hardware.tier_bandwidth[1:])))
    assert all_gather(facts, num(16), ONE).s_per_byte * 50e9 == pytest.approx(15 / 16 / 8)
    assert all_gather(facts, num(2), num(8)).s_per_byte * 50e9 == pytest.approx(1 / 2)


@pytest.mark.parametrize("collective", [all_gather, all_reduce])
def test_a_group_inside_a_node_does_not_feel_the_network(collective: object) -> None:
    assert callable(collective)
    hardware = H100.hardware
    slow = replace(H100, hardware=replace(hardware, tier_bandwidth=(hardware.tier_bandwidth[0], num(1e6), num(1e6))))
    for group, stride in ((8, 1), (4, 2), (2, 4)):
        inside = collective(H100, num(group), num(stride)).seconds(LARGE)
        assert collective(slow, num(group), num(stride)).seconds(LARGE) == inside
        outside = collective(H100, num(group), num(stride * 2)).seconds(LARGE)
        assert collective(slow, num(group), num(stride * 2)).seconds(LARGE) > 10 * outside


def test_nothing_is_sent_by_one_rank_or_without_bytes() -> None:
    for cost in (
        all_gather(H100, ONE, ONE),
        all_reduce(H100, ONE, ONE),
        all_to_all(H100, ONE, ONE, num(8), num(4), num(8)),
    ):
        assert cost.seconds(LARGE) == 0
    assert all_gather(H100, num(8), ONE).seconds(num(0)) == 0


@pytest.mark.parametrize("nodes", [2, 4, 8, 16])
@pytest.mark.parametrize("copies", [1, 2, 8])
def test_expert_exchange_sends_a_token_once_to_each_node_it_reaches(nodes: int, copies: int) -> None:
    """``(N - 1)(1 - (1 - 1/N)^k)``, and the same by drawing the nodes of many tokens."""
    facts = on_flat_links(50e9)
    hardware = facts.hardware
    facts = replace(facts, hardware=replace(hardware, tier_bandwidth=(num(1e15), num(50e9), num(50e9))))
    found = all_to_all(facts, num(8 * nodes), ONE, num(copies)).s_per_byte * 50e9
    assert found == pytest.approx((nodes - 1) * (1 - (1 - 1 / nodes) ** copies))
    draws = np.random.default_rng(0).integers(nodes, size=(20_000, copies))
    remote = np.mean([len(set(token) - {0}) for token in draws.tolist()])
    assert found == pytest.approx(remote, rel=0.03)


@pytest.mark.parametrize("nodes", [8, 16, 32])
def test_a_router_that_limits_itself_reaches_fewer_nodes(nodes: int) -> None:
    """DeepSeek-V3 (arXiv 2412.19437, section 2.1.2): 8 experts out of 4 of 8 groups, each on one or more nodes."""
    rng = np.random.default_rng(0)
    spread = nodes // 8
    reached = []
    for _ in range(5_000):
        chosen = rng.permutation(8)[:4]
        on = rng.choice(chosen, size=8) * spread + rng.integers(spread, size=8)
        reached.append(len(set(on.tolist()) - {0}))
    found = float(remote_units(num(nodes), num(8), num(4), num(8)))
    assert found == pytest.approx(np.mean(reached), rel=0.05)
    assert found < float(remote_units(num(nodes), num(8), num(1), num(1)))


def test_several_groups_on_one_node_are_reached_together() -> None:
    """Four of eight groups on two nodes: nearly always both."""
    assert float(remote_units(num(2), num(8), num(4), num(8))) == pytest.approx(0.9, abs=0.1)


@pytest.mark.parametrize(("group", "stride", "tier"), [(2, 1, 0), (8, 1, 0), (2, 8, 1), (4, 4, 1), (64, 64, 1)])
def test_neighbours_wait_for_the_pair_that_crosses_the_outermost_tier(group: int, stride: int, tier: int) -> None:
    efficiency = (H100.cal.scale_up_efficiency, H100.cal.scale_out_efficiency)[tier]
    expected = 1 / (H100.hardware.tier_bandwidth[tier] * efficiency)
    assert neighbours(H100, num(group), num(stride)).s_per_byte == pytest.approx(expected)


@pytest.mark.parametrize(
    ("cluster", "ranks", "name"),
    [
        ("dgx-a100-80gb", 8, "ring"),
        ("dgx-h100", 4, "ring"),
        ("dgx-h100", 5, "switch"),
        ("dgx-h100", 8, "switch"),
        ("dgx-b200", 5, "ring"),
        ("dgx-b200", 6, "switch"),
        ("dgx-h100", 16, "switch"),
        ("gb200-nvl72", 144, "switch"),
    ],
)
def test_large_messages_take_the_algorithm_that_nccl_took(cluster: str, ranks: int, name: str) -> None:
    """nccl-tests with NCCL 2.27.7: NVLS from five ranks on H200, from six on B200; rings below."""
    assert taken(facts_of(cluster), num(ranks), ONE, LARGE) == [name]


def test_small_messages_over_many_nodes_climb_trees() -> None:
    """2 log2 N steps instead of 2 (N - 1); with two ranks both are one exchange."""
    facts = facts_of("dgx-a100-80gb")
    nodes = num([2.0, 4.0, 64.0, 512.0])
    small, large = (taken(facts, nodes, num(8), num(size)) for size in (4096, 16 * 2**30))
    assert list(small) == ["ring", "tree", "tree", "tree"]
    assert list(large) == ["ring", "ring", "ring", "tree"]
    ways = all_reduce_algorithms(facts, nodes, num(8))
    hop, start = facts.cal.scale_out_hop_s, facts.cal.scale_out_latency_s
    assert ways["tree"].latency_s == pytest.approx(start + 2 * np.log2(nodes) * hop)
    assert ways["ring"].latency_s == pytest.approx(start + 2 * (nodes - 1) * hop)


def test_steps_of_a_ring_inside_and_between_nodes_are_those_of_nccl() -> None:
    """src/graph/tuning.cc of NCCL 2.30.7: N - 1 steps of an all-gather; all nodes but one are entered."""
    facts, cal = by_formula(H100), H100.cal
    latency = all_gather(facts, num(64), ONE).latency_s
    assert latency == pytest.approx(cal.scale_out_latency_s + 56 * cal.scale_up_hop_s + 7 * cal.scale_out_hop_s)


@pytest.mark.parametrize("nodes", [2, 4, 32])
def test_switches_of_the_network_that_reduce_halve_what_its_links_carry(nodes: int) -> None:
    """Each device sends the message once and gets it once: 2 (N - 1)/N times less than in a ring."""
    facts, group = on_flat_links(50e9), num(nodes)
    hardware = facts.hardware
    reducing = replace(facts, hardware=replace(hardware, tier_in_network=(num(0), num(1), num(1))))
    plain = all_reduce_algorithms(facts, group, num(8))
    assert np.isinf(plain["network"].s_per_byte)
    network = all_reduce_algorithms(reducing, group, num(8))["network"]
    assert network.s_per_byte * 50e9 == pytest.approx(1)
    assert plain["ring"].s_per_byte / network.s_per_byte == pytest.approx(2 * (nodes - 1) / nodes)
    best = all_reduce(reducing, group, num(8))
    assert best.s_per_byte == network.s_per_byte
    assert (taken(reducing, group, num(8), LARGE) == ["network"]) == (nodes > 2)


def test_the_best_of_latency_and_rate_is_near_the_best_algorithm_at_every_size() -> None:
    for cluster, ranks in itertools.product(("dgx-a100-80gb", "dgx-h100", "gb200-nvl72"), (2, 8, 16, 64, 1024)):
        facts, group = by_formula(facts_of(cluster)), num(ranks)
        sizes = np.geomspace(1024, 2.0**34, 60)
        ways = all_reduce_algorithms(facts, group, ONE).values()
        best = np.min([way.latency_s + sizes * way.s_per_byte for way in ways], axis=0)
        cost = all_reduce(facts, group, ONE)
        found = cost.latency_s + sizes * cost.s_per_byte
        assert (found <= best * (1 + 1e-12)).all()
        assert (found > 0.85 * best).all(), (cluster, ranks)


@pytest.mark.parametrize(
    ("cluster", "limit", "nodes", "logical_gb_per_s"),
    [
        ("h800-8x400g", 2, 2, 43),  # what NVLink passes on inside the node takes longer than the network
        ("h800-8x400g", 4, 4, 58),
        ("h800-8x400g", 4, 8, 51),
        ("dgx-h100", 1, 2, 90),
        ("dgx-h100", 1, 4, 61),
        ("dgx-b200", 1, 2, 90),
    ],
)
def test_deepep_sends_a_token_once_to_each_node(cluster: str, limit: int, nodes: int, logical_gb_per_s: float) -> None:
    """deepseek-ai/DeepEP @dd758caf, top 8: docs/legacy.md (H800, on at most 4 nodes), README.md (SM90 and SM100).

    Its "logical" rate counts the node's own share too, so (N - 1)/N of it crosses a NIC of 50 GB/s.
    """
    # Its measuring script takes every node for a group of experts.
    facts, groups = by_formula(facts_of(cluster)), num(nodes if limit > 1 else 1)
    reached = remote_units(num(nodes), num(8), num(limit), groups) * nodes / (nodes - 1)
    exchange = all_to_all(facts, num(8 * nodes), ONE, num(8), num(limit), groups)
    size = num(4096 * 7168 * 2)  # of one combine of 4096 tokens in 16 bits
    assert float(reached * size / exchange.seconds(size)) / 1e9 == pytest.approx(logical_gb_per_s, rel=0.25)
    # With one copy for each of its experts it would take the network longer than it was measured to take.
    copied = 8 * (nodes - 1) / nodes / 50e9
    assert float(reached) / copied / 1e9 < 0.85 * logical_gb_per_s


@pytest.mark.parametrize("collective", [all_gather, reduce_scatter, all_reduce])
def test_the_ramp_is_felt_between_small_and_large_messages(collective: object) -> None:
    """``a + g sqrt(S) + b S``: the most where transfer and start last as long; a third there with a ramp of one."""
    assert callable(collective)
    facts = recalibrated(by_formula(H100), collective_ramp=1.0, scale_up_hop_s=0.0)
    cost = collective(facts, num(8), ONE)
    level = cost.latency_s / cost.s_per_byte
    share = [
        float(np.sqrt(size) * cost.s_per_root_byte / cost.seconds(size))
        for size in (level / 1e6, level / 2, level, level * 2, level * 1e6)
    ]
    assert share[2] == pytest.approx(1 / 3)
    assert max(share) == share[2]
    assert share[0] < 0.002
    assert share[4] < 0.002
    without = recalibrated(facts, collective_ramp=0.0)
    line = collective(without, num(8), ONE)
    assert line.seconds(LARGE) == pytest.approx(line.latency_s + LARGE * line.s_per_byte)


@pytest.mark.parametrize("collective", [all_gather, reduce_scatter, all_reduce])
def test_links_without_end_leave_the_latency(collective: object) -> None:
    assert callable(collective)
    facts, group = by_formula(H100), num([2.0, 8.0, 64.0])
    endless = tuple(num(1e30) for _ in facts.hardware.tier_bandwidth)
    free = replace(facts, hardware=replace(facts.hardware, tier_bandwidth=endless))
    cost = collective(free, group, ONE)
    assert cost.seconds(num(1e9)) == pytest.approx(cost.latency_s)
    slow = replace(facts, hardware=replace(facts.hardware, tier_bandwidth=tuple(num(1e-3) for _ in endless)))
    assert (collective(slow, group, ONE).seconds(num(1e9)) > 1e9).all()


def test_pcie_is_no_switched_fabric() -> None:
    """SimuMax, eight A100 on PCIe: a ring reaches 0.418 of the link."""
    facts = facts_of("l40s-8")
    busbw = 7 / 8 / float(all_gather(facts, num(8), ONE).s_per_byte)
    assert busbw == pytest.approx(0.42 * float(facts.hardware.tier_bandwidth[0]))


groups = st.sampled_from([2, 3, 4, 6, 8, 16, 24, 64, 128, 512])
strides = st.sampled_from([1, 2, 4, 8, 16, 64])
clusters = st.sampled_from(["dgx-h100", "meta-llama3-h100", "gb200-nvl72", "mi300x-8x400g"]).map(facts_of)


@given(facts=clusters, group=groups, stride=strides, tier=st.integers(0, 2), factor=st.floats(1.01, 10))
def test_a_faster_tier_never_slows_a_collective(
    facts: Facts, group: int, stride: int, tier: int, factor: float
) -> None:
    rates = list(facts.hardware.tier_bandwidth)
    rates[tier] = rates[tier] * factor
    faster = replace(facts, hardware=replace(facts.hardware, tier_bandwidth=tuple(rates)))

    def seconds(f: Facts) -> np.ndarray:
        g, s = num(group), num(stride)
        costs: list[TierCost] = [
            all_gather(f, g, s),
            all_reduce(f, g, s),
            all_to_all(f, g, s, num(8)),
            neighbours(f, g, s),
        ]
        return np.array([cost.seconds(num(1e8)) for cost in costs])

    assert (seconds(faster) <= seconds(facts)).all()


@given(facts=clusters, group=st.sampled_from([2, 4, 8, 16, 32, 64, 128, 256]), stride=strides)
def test_a_larger_group_never_takes_less_time_for_the_same_bytes(facts: Facts, group: int, stride: int) -> None:
    # A switch that reduces takes over at some size, which is a step down.
    facts = by_formula(recalibrated(facts, in_network_gain=1, in_network_gain_across=1))
    g, s = num(group), num(stride)
    for cost in (all_gather, all_reduce):
        assert cost(facts, 2 * g, s).seconds(LARGE) >= cost(facts, g, s).seconds(LARGE)


# What plans send, over links without losses. The cluster: 450 GB/s inside a node of 8, 50 GB/s between nodes.

INSIDE, OUTSIDE = 450e9, 50e9


def sent(term: Term, output: str, model: str = "llama-3-8b", seq_len: int = 8192, **axes: int) -> float:
    """Seconds of one output for one micro-batch of one layer."""
    facts = lossless(Facts.of(scenario_of(model, seq_len=seq_len)))
    degrees = {"tp": 1, "cp": 1, "cp_comm_type": 0, "ep": 1, "etp": 1, "dp": 1, "pp": 1, "micro_batch_size": 1} | axes
    return float(term.evaluate(facts, axes_of(**degrees))[output][0])


@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_parallelism_does_four_all_reduces_a_layer(tp: int) -> None:
    """Primer, "Communication cost": 2 forward and 2 backward, each of ``b s h`` elements."""
    scenario = scenario_of("llama-3-8b", devices=tp, global_batch_size=4)
    found = broken_down(scenario, plan_row(4, tp=tp), facts=lossless(Facts.of(scenario)))
    once = 2 * (tp - 1) / tp * (2 * 8192 * 4096) / INSIDE
    assert found.time["tp_comm"] == pytest.approx(4 * 32 * 4 * once)


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_ring_and_gather_move_the_same_keys_and_values(cp: int) -> None:
    """Every rank gets the K/V chunks of the c - 1 others: 2 * 1024 elements a token in Llama 3 8B."""
    others = (cp - 1) * (8192 / cp) * 2 * 1024 * 2
    assert sent(CONTEXT_PARALLEL, "cp_hideable_s", cp=cp, cp_comm_type=P2P) == pytest.approx(others / INSIDE)
    assert sent(CONTEXT_PARALLEL, "cp_exposed_s", cp=cp, cp_comm_type=ALL_GATHER) == pytest.approx(others / INSIDE)
    assert sent(CONTEXT_PARALLEL, "cp_exposed_s", cp=cp, cp_comm_type=P2P) == 0


@pytest.mark.parametrize("cp", [2, 8])
def test_ulysses_sends_all_but_the_own_share_of_every_head(cp: int) -> None:
    """Jacobs 2023 (arXiv 2309.14509): Q, K, V before and the output after attention, so it falls with the degree."""
    elements = (8192 / cp) * (4096 + 2 * 1024 + 4096)
    expected = elements * 2 * (cp - 1) / cp / INSIDE
    assert sent(CONTEXT_PARALLEL, "cp_exposed_s", cp=cp, cp_comm_type=A2A, cp_a2a_degree=cp) == pytest.approx(expected)


def test_a_ring_over_nodes_goes_at_the_pace_of_the_network() -> None:
    chunk = (8192 / 16) * 2 * 1024 * 2
    assert sent(CONTEXT_PARALLEL, "cp_hideable_s", cp=16) == pytest.approx(15 * chunk / OUTSIDE)


@pytest.mark.parametrize("tp", [1, 2])
def test_experts_get_every_token_k_times_and_send_it_back(tp: int) -> None:
    """Primer, "Expert parallelism": ``tokens * k * h`` each way of a rank's own tokens, less what stays."""
    all_to_all_code = MOE_DISPATCHERS.index("all_to_all")
    found = sent(EXPERT_PARALLEL, "ep_exchange_s", "mixtral-8x7b", tp=tp, ep=8, moe_dispatcher=all_to_all_code)
    assert found == pytest.approx(2 * (8192 / tp) * 2 * 4096 * 2 * 7 / 8 / INSIDE)


def test_expert_tensor_parallelism_gathers_the_routed_copies() -> None:
    copies = 8192 / 4 * 2 * 4  # tokens of a rank, top 2, from four ranks
    found = sent(TENSOR_PARALLEL, "tp_expert_s", "mixtral-8x7b", tp=4, etp=4)
    assert found == pytest.approx(2 * copies * 4096 * 2 * 3 / 4 / INSIDE)


@pytest.mark.parametrize(("tp", "dp", "rate"), [(2, 2, INSIDE), (8, 1, OUTSIDE), (1, 8, OUTSIDE)])
def test_stages_hand_on_one_activation_cut_over_tp(tp: int, dp: int, rate: float) -> None:
    """Primer, "Pipeline parallelism": ``b s h`` per micro-batch and boundary."""
    found = sent(PIPELINE_PARALLEL, "pp_boundary_s", tp=tp, dp=dp, pp=2)
    assert found == pytest.approx(8192 * 4096 * 2 / tp / rate)


@pytest.mark.parametrize("vpp", [1, 2, 4])
def test_every_chunk_of_every_micro_batch_crosses_twice(vpp: int) -> None:
    scenario = scenario_of("llama-3-8b", devices=16, global_batch_size=8)
    found = broken_down(scenario, plan_row(8, tp=8, pp=2, vpp=vpp), facts=lossless(Facts.of(scenario)))
    assert found.time["pp_comm"] == pytest.approx(8 * 2 * vpp * 8192 * 4096 * 2 / 8 / OUTSIDE)
