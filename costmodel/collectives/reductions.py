"""All-gather, reduce-scatter, broadcast and all-reduce by algorithm.

Both of the first are one pass of a ring, which visits every device once. Each of its edges carries all of the message
but one share, whether it lies inside a unit or leaves it: over the ``l_(k-1)`` rails of a unit that is

    (N - 1) / N * S / (l_(k-1) * bandwidth_k)

on every tier that the ring crosses, and the slowest tier decides. It takes N - 1 steps, of which the nodes less one
leave a node. An all-reduce has more ways, of which the fastest is taken, as NCCL does (src/graph/tuning.cc, 2.30.7):

- ring: two passes.
- tree: two trees, each with half of the message; a device's links carry the message up and down (between two units half
  of it each way), in 2 log2 of the units steps.
- switch (NVLS), where the innermost switch reduces: a ring's bytes inside it, *in_network_gain* times as fast; trees
  outside.
- network (SHARP), where the switches of every crossed network reduce too: outside, the message once each way, in one
  step.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from costmodel.arrays import Bools, Num
from costmodel.collectives.cost import TierCost
from costmodel.collectives.tiers import hop_s, members, ramp, rate, spans, start_s, with_curve
from costmodel.facts import Facts


def all_gather(f: Facts, group: Num, stride: Num) -> TierCost:
    """``S`` is the full, gathered size."""
    return with_curve(f, "all_gather", group, stride, ring_pass(f, group, stride))


def reduce_scatter(f: Facts, group: Num, stride: Num) -> TierCost:
    """``S`` is the full size, before it is scattered."""
    return with_curve(f, "reduce_scatter", group, stride, ring_pass(f, group, stride))


def ring_pass(f: Facts, group: Num, stride: Num) -> TierCost:
    """One pass of a ring, by the formula alone."""
    share = (group - 1.0) / group
    slowest, hops, start = np.zeros_like(group), np.zeros_like(group), np.zeros_like(group)
    for tier, inner, units, crosses in spans(f, group, stride):
        slowest = np.where(crosses, np.maximum(slowest, share / (inner * rate(f, tier))), slowest)
        start = np.where(crosses, start_s(f, tier), start)
        # Of the N - 1 steps, those that join units of the tier below inside one of this tier.
        hops = hops + (group / inner - group / (inner * units)) * hop_s(f, tier)
    return TierCost(start + hops, slowest, ramp(f, start, slowest))


def broadcast(f: Facts, group: Num, stride: Num) -> TierCost:
    """``S`` is what one rank sends to all others: a chain through the ring, each of whose edges carries all of it.

    One that follows another from a rank further on starts when that has arrived: a ring visits the devices of a node in
    an order of its own, so that the next sender is often one of the last to receive.
    """
    once, whole = ring_pass(f, group, stride), group / np.maximum(group - 1.0, 1.0)
    return TierCost(once.latency_s, once.s_per_byte * whole, once.s_per_root_byte * np.sqrt(whole))


def all_reduce(f: Facts, group: Num, stride: Num) -> TierCost:
    """``S`` is the size of the buffer that every device has before and after.

    The latency of the quickest algorithm to start and the rate of the fastest: small and large messages each take
    theirs, and where they cross over all are within a few per cent of each other.
    """
    start, ways = _ways(f, group, stride)
    latency, per_byte = np.full_like(group, np.inf), np.full_like(group, np.inf)
    for way in ways.values():
        latency, per_byte = np.minimum(latency, way.latency_s), np.minimum(per_byte, way.s_per_byte)
    return with_curve(f, "all_reduce", group, stride, TierCost(latency, per_byte, ramp(f, start, per_byte)))


def taken(f: Facts, group: Num, stride: Num, size: Num) -> NDArray[np.str_]:
    """The name of the algorithm that an all-reduce of ``size`` bytes takes, one per group."""
    ways = all_reduce_algorithms(f, group, stride)
    seconds = np.stack([np.atleast_1d(way.latency_s + size * way.s_per_byte) for way in ways.values()])
    taken_ones: NDArray[np.str_] = np.array(list(ways))[seconds.argmin(axis=0)]
    return taken_ones


def all_reduce_algorithms(f: Facts, group: Num, stride: Num) -> Mapping[str, TierCost]:
    """Every algorithm of an all-reduce by its name, without ramp; infinite where no switch reduces as it needs."""
    _, ways = _ways(f, group, stride)
    return ways


def _ways(f: Facts, group: Num, stride: Num) -> tuple[Num, Mapping[str, TierCost]]:
    """When an all-reduce starts, and its algorithms."""
    once = ring_pass(f, group, stride)
    inside, cal = members(f, group, stride)[0], f.cal
    alone, several = group <= 1.0, group > inside
    # Each of two units is the root of one tree: half of the message goes up and half comes down.
    share = np.where(group / inside > 2.0, 1.0, 1.0 / 2.0)
    chained = np.where(inside > 2.0, 1.0, (inside - 1.0) / inside)
    gain = np.where(several, cal.in_network_gain_across, cal.in_network_gain)
    ring_inside, tree_inside, tree_outside, one_way = (np.zeros_like(group) for _ in range(4))
    tree_s, switch_s, network_s, start = (np.zeros_like(group) for _ in range(4))
    reduces = np.ones_like(group)
    for tier, inner, units, crosses in spans(f, group, stride):
        start = np.where(crosses, start_s(f, tier), start)
        steps = 2.0 * np.log2(units) * hop_s(f, tier)
        tree_s = tree_s + steps
        per_byte = 1.0 / (inner * rate(f, tier))
        if tier == 0:
            ring_inside = np.where(crosses, 2.0 * (group - 1.0) / group * per_byte, 0.0)
            tree_inside = np.where(crosses, 2.0 * chained * per_byte, 0.0)
            switch_s = network_s = np.where(crosses, 2.0 * hop_s(f, tier), 0.0)
        else:
            tree_outside = np.where(crosses, np.maximum(tree_outside, 2.0 * share * per_byte), tree_outside)
            one_way = np.where(crosses, np.maximum(one_way, per_byte), one_way)
            reduces = np.where(crosses, reduces * f.hardware.tier_in_network[tier], reduces)
            switch_s = switch_s + steps
            network_s = network_s + np.where(crosses, 2.0 * hop_s(f, tier), 0.0)
    has_switch: Bools = (f.hardware.tier_in_network[0] > 0) & (inside >= cal.in_network_min_ranks)
    switch_inside = ring_inside / gain
    network_inside = np.where(has_switch, switch_inside, ring_inside)

    def way(possible: Bools, latency: Num, per_byte: Num) -> TierCost:
        return TierCost(
            latency_s=np.where(alone, 0.0, np.where(possible, latency, np.inf)),
            s_per_byte=np.where(alone, 0.0, np.where(possible, per_byte, np.inf)),
        )

    always = np.ones_like(group, dtype=np.bool_)
    return start, {
        "ring": way(always, 2.0 * once.latency_s - start, 2.0 * once.s_per_byte),
        "tree": way(always, start + tree_s, np.maximum(tree_inside, tree_outside)),
        "switch": way(has_switch, start + switch_s, np.maximum(switch_inside, tree_outside)),
        "network": way(several & (reduces > 0), start + network_s, np.maximum(network_inside, one_way)),
    }
