"""Seconds of a collective over a tiered network.

A group of ``group`` ranks whose neighbours lie ``stride`` devices apart has ``l_k`` members inside one unit of tier
``k``. Between the units of tier ``k-1`` inside one of tier ``k`` every byte crosses once per unit boundary, over the
links of the ``l_(k-1)`` members there (one ring per rail), so a large message is limited by the slowest of the tiers:

    ring pass of S bytes:  max_k (u_k - 1) / u_k * S / (l_(k-1) * bandwidth_k),   u_k = l_k / l_(k-1)

plus latency. An all-gather or a reduce-scatter is one ring pass, an all-reduce two (primer, "Cost model: ring vs
tree").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costmodel.arrays import Num
from costmodel.facts import Facts


class TierCost(NamedTuple):
    """A collective of S bytes takes ``latency_s + S * s_per_byte``."""

    latency_s: Num
    s_per_byte: Num

    def seconds(self, size_bytes: Num) -> Num:
        """Seconds for ``size_bytes``; nothing is sent when there is nothing."""
        return np.where(size_bytes > 0, self.latency_s + size_bytes * self.s_per_byte, 0.0)


def _members(f: Facts, group: Num, stride: Num) -> list[Num]:
    """Members of the group inside one unit of each tier, innermost first."""
    return [np.clip(np.floor(devices / stride), 1.0, group) for devices in f.hardware.tier_devices]


def _by_kind(f: Facts, tier: int, *, scale_up: Num, pcie: Num, network: Num) -> Num:
    """The parameter for the kind of link that a tier is made of."""
    hardware = f.hardware
    return np.where(hardware.tier_scale_up[tier] > 0, scale_up, np.where(hardware.tier_pcie[tier] > 0, pcie, network))


def _rate(f: Facts, tier: int) -> Num:
    """Bytes per second of one device that a large ring reaches on a tier."""
    cal = f.cal
    efficiency = _by_kind(
        f, tier, scale_up=cal.scale_up_efficiency, pcie=cal.pcie_efficiency, network=cal.scale_out_efficiency
    )
    return f.hardware.tier_bandwidth[tier] * efficiency


def _start_s(f: Facts, tier: int) -> Num:
    inside, outside = f.cal.scale_up_latency_s, f.cal.scale_out_latency_s
    return _by_kind(f, tier, scale_up=inside, pcie=inside, network=outside)


def _hop_s(f: Facts, tier: int) -> Num:
    inside, outside = f.cal.scale_up_hop_s, f.cal.scale_out_hop_s
    return _by_kind(f, tier, scale_up=inside, pcie=inside, network=outside)


def _pass_per_byte(f: Facts, group: Num, stride: Num, innermost_gain: Num | float = 1.0) -> Num:
    """Seconds per byte of one ring pass: the slowest tier decides."""
    inner, slowest = np.ones_like(group), np.zeros_like(group)
    for tier, members in enumerate(_members(f, group, stride)):
        units = members / inner
        # Inside the innermost unit the ring carries the whole message past every member, also when it goes on outside.
        share = (group - 1.0) / group / innermost_gain if tier == 0 else (units - 1.0) / units
        slowest = np.where(units > 1.0, np.maximum(slowest, share / (inner * _rate(f, tier))), slowest)
        inner = members
    return slowest


def ring_pass(f: Facts, group: Num, stride: Num) -> TierCost:
    """All-gather or reduce-scatter: ``S`` is the full, gathered size."""
    inner, hops, start = np.ones_like(group), np.zeros_like(group), np.zeros_like(group)
    for tier, members in enumerate(_members(f, group, stride)):
        units = members / inner
        start = np.where(units > 1.0, _start_s(f, tier), start)
        hops = hops + (units - 1.0) * _hop_s(f, tier)
        inner = members
    return TierCost(latency_s=start + hops, s_per_byte=_pass_per_byte(f, group, stride))


def all_reduce(f: Facts, group: Num, stride: Num) -> TierCost:
    """Two ring passes; where the innermost switch reduces, that tier is faster by the measured gain.

    The switch helps from ``in_network_min_ranks`` members of one unit upwards. Latency takes the better of ring and
    double binary tree (``log2`` of the group), as NCCL chooses.
    """
    once = ring_pass(f, group, stride)
    members = _members(f, group, stride)[0]
    reduces = (f.hardware.tier_in_network[0] > 0) & (members >= f.cal.in_network_min_ranks)
    gain = np.where(reduces, f.cal.in_network_gain, 1.0)
    inside = members >= group
    tree = 2.0 * np.log2(np.maximum(group, 1.0)) * np.where(inside, _hop_s(f, 0), _hop_s(f, 1))
    start = np.where(inside, _start_s(f, 0), _start_s(f, 1))
    latency = np.where(group > 1.0, np.minimum(2.0 * once.latency_s, start + tree), 0.0)
    return TierCost(latency_s=latency, s_per_byte=2.0 * _pass_per_byte(f, group, stride, gain))


def remote_units(units: Num, copies: Num, group_limit: Num, groups: Num) -> Num:
    """Mean number of remote units, out of ``units``, that one token reaches with ``copies`` copies drawn at random.

    ``U (1 - (1 - 1/U)^copies) (units - 1) / units`` with U the units that the router may choose from: all of them,
    or, when it limits a token to ``group_limit`` of ``groups`` groups of experts, those that the chosen groups lie on
    (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
    """
    spread = units * group_limit / groups  # a group lies on several units, or on one
    packed = units * (1.0 - (1.0 - 1.0 / units) ** group_limit)  # several groups lie on one unit
    reachable = np.where(group_limit < groups, np.minimum(units, np.maximum(spread, packed)), units)
    reachable = np.maximum(reachable, 1.0)
    return reachable * (1.0 - (1.0 - 1.0 / reachable) ** copies) * (units - 1.0) / units


def all_to_all(
    f: Facts, group: Num, stride: Num, copies: Num, group_limit: Num | float = 1.0, groups: Num | float = 1.0
) -> TierCost:
    """Token exchange: ``S`` is what one device would send if every token went to one place.

    Each token goes to ``copies`` of the group's ranks. Across a tier it is sent once per *unit* that it reaches, not
    once per rank (``remote_units``); inside the innermost unit every copy that is not already in place moves.
    """
    per_byte, latency = np.zeros_like(group), np.zeros_like(group)
    inner = np.ones_like(group)
    limit, all_groups = np.asarray(group_limit, dtype=np.float64), np.asarray(groups, dtype=np.float64)
    for tier, inside in enumerate(_members(f, group, stride)):
        moved = copies * (inside - 1.0) / inside
        if tier > 0:
            moved = remote_units(group / inner, copies, limit, all_groups)
        crosses = inside > inner
        per_byte = np.where(crosses, np.maximum(per_byte, moved / _rate(f, tier)), per_byte)
        latency = np.where(crosses, _start_s(f, tier), latency)
        inner = inside
    return TierCost(latency_s=latency, s_per_byte=per_byte)


def neighbours(f: Facts, group: Num, stride: Num) -> TierCost:
    """Every member of a chain or ring to its neighbour at once: the rate of the outermost tier that the group spans.

    Some pair of neighbours crosses it, and the others wait for that pair.
    """
    span = group * stride
    per_byte, latency = 1.0 / _rate(f, 0) + np.zeros_like(span), _hop_s(f, 0) + np.zeros_like(span)
    for tier in range(1, len(f.hardware.tier_bandwidth)):
        outside = span > f.hardware.tier_devices[tier - 1]
        per_byte = np.where(outside, 1.0 / _rate(f, tier), per_byte)
        latency = np.where(outside, _hop_s(f, tier), latency)
    return TierCost(latency_s=latency, s_per_byte=per_byte)
