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


def _efficiency(f: Facts, tier: int) -> Num:
    return f.cal.scale_up_efficiency if tier == 0 else f.cal.scale_out_efficiency


def ring_pass(f: Facts, group: Num, stride: Num) -> TierCost:
    """All-gather or reduce-scatter: ``S`` is the full, gathered size."""
    inner, per_byte, hops, latency = (
        np.ones_like(group),
        np.zeros_like(group),
        np.zeros_like(group),
        np.zeros_like(group),
    )
    for tier, members in enumerate(_members(f, group, stride)):
        units = members / inner
        rate = f.hardware.tier_bandwidth[tier] * _efficiency(f, tier)
        # Inside the innermost unit the ring carries the whole message past every member, also when it goes on outside.
        share = (group - 1.0) / group if tier == 0 else (units - 1.0) / units
        crosses = units > 1.0
        per_byte = np.where(crosses, np.maximum(per_byte, share / (inner * rate)), per_byte)
        start = f.cal.scale_up_latency_s if tier == 0 else f.cal.scale_out_latency_s
        hop = f.cal.scale_up_hop_s if tier == 0 else f.cal.scale_out_hop_s
        latency = np.where(crosses, start, latency)
        hops = hops + (units - 1.0) * hop
        inner = members
    return TierCost(latency_s=latency + hops, s_per_byte=per_byte)


def all_reduce(f: Facts, group: Num, stride: Num) -> TierCost:
    """Two ring passes; inside one scale-up domain whose switch reduces, faster by the measured gain.

    Latency takes the better of ring and double binary tree (``log2`` of the group), as NCCL chooses.
    """
    once = ring_pass(f, group, stride)
    inside = np.floor(f.hardware.tier_devices[0] / stride) >= group
    gain = np.where(inside & (f.hardware.tier_in_network[0] > 0), f.cal.in_network_gain, 1.0)
    tree = 2.0 * np.log2(np.maximum(group, 1.0)) * np.where(inside, f.cal.scale_up_hop_s, f.cal.scale_out_hop_s)
    start = np.where(inside, f.cal.scale_up_latency_s, f.cal.scale_out_latency_s)
    latency = np.where(group > 1.0, np.minimum(2.0 * once.latency_s, start + tree), 0.0)
    return TierCost(latency_s=latency, s_per_byte=2.0 * once.s_per_byte / gain)


def all_to_all(f: Facts, group: Num, stride: Num, copies: Num, unit_limit: Num) -> TierCost:
    """Token exchange: ``S`` is what one device would send if every token went to one place.

    Each token goes to ``copies`` of the group's ranks, drawn at random. Across a tier it is sent once per *unit*
    that it reaches, not once per rank: ``(N - 1) * (1 - (1 - 1/N)^copies)`` remote units out of ``N`` on average, at
        most
    ``unit_limit`` of them when the router limits itself (DeepSeek-V3, arXiv 2412.19437, section 2.1.2). Inside the
    innermost unit every copy that is not already in place moves.
    """
    members = _members(f, group, stride)
    per_byte, latency = np.zeros_like(group), np.zeros_like(group)
    inner = np.ones_like(group)
    for tier, inside in enumerate(members):
        rate = f.hardware.tier_bandwidth[tier] * _efficiency(f, tier)
        if tier == 0:
            moved = copies * (inside - 1.0) / inside
            crosses = inside > 1.0
        else:
            units = group / inner
            moved = np.minimum((units - 1.0) * (1.0 - (1.0 - 1.0 / units) ** copies), unit_limit)
            crosses = inside > inner
        per_byte = np.where(crosses, np.maximum(per_byte, moved / rate), per_byte)
        latency = np.where(crosses, f.cal.scale_up_latency_s if tier == 0 else f.cal.scale_out_latency_s, latency)
        inner = inside
    return TierCost(latency_s=latency, s_per_byte=per_byte)


def point_to_point(f: Facts, stride: Num) -> TierCost:
    """One device to the one ``stride`` devices further: the rate of the outermost tier on the way."""
    per_byte = 1.0 / (f.hardware.tier_bandwidth[0] * f.cal.scale_up_efficiency) + np.zeros_like(stride)
    latency = f.cal.scale_up_hop_s + np.zeros_like(stride)
    for tier in range(1, len(f.hardware.tier_bandwidth)):
        outside = stride >= f.hardware.tier_devices[tier - 1]
        rate = f.hardware.tier_bandwidth[tier] * f.cal.scale_out_efficiency
        per_byte = np.where(outside, 1.0 / rate, per_byte)
        latency = np.where(outside, f.cal.scale_out_hop_s, latency)
    return TierCost(latency_s=latency, s_per_byte=per_byte)


def ring_all_reduce_s(*, ranks: int, size_bytes: float, bandwidth_bytes_per_s: float, latency_s: float = 0.0) -> float:
    """The textbook ring: ``2 (N-1) latency + 2 (N-1)/N S/B`` (primer, "Cost model: ring vs tree"), on a flat
    network.
    """
    return 2 * (ranks - 1) * latency_s + 2 * (ranks - 1) / ranks * size_bytes / bandwidth_bytes_per_s
