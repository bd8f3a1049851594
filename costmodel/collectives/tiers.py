"""The tiers of network that a group spans, and what calibration says of their links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from costmodel.arrays import Bools, Num
from costmodel.collectives.cost import TierCost
from costmodel.facts import Facts
from costmodel.spec.collective import CollectiveOp


class Span(NamedTuple):
    """What a group has of one tier.

    Attributes:
        tier: position of the tier, innermost first.
        inner: members inside one unit of the tier below: the rails that it sends over at once.
        units: such units inside one unit of this tier; 1 where the group does not cross it.
        crosses: where it does.
    """

    tier: int
    inner: Num
    units: Num
    crosses: Bools


def members(f: Facts, group: Num, stride: Num) -> list[Num]:
    """Members of the group inside one unit of each tier, innermost first."""
    return [np.clip(np.floor(devices / stride), 1.0, group) for devices in f.hardware.tier_devices]


def spans(f: Facts, group: Num, stride: Num) -> Iterator[Span]:
    """The tiers that any of the groups crosses, innermost first."""
    inner = np.ones_like(group)
    for tier, inside in enumerate(members(f, group, stride)):
        crosses = inside > inner
        if crosses.any():
            yield Span(tier, inner, inside / inner, crosses)
        inner = inside


def _by_kind(f: Facts, tier: int, *, scale_up: Num, pcie: Num, network: Num) -> Num:
    """The parameter for the kind of link that a tier is made of."""
    hardware = f.hardware
    return np.where(hardware.tier_scale_up[tier] > 0, scale_up, np.where(hardware.tier_pcie[tier] > 0, pcie, network))


def rate(f: Facts, tier: int, network_factor: Num | float = 1.0) -> Num:
    """Bytes per second of one device that large messages reach on a tier; on a network, times ``network_factor``."""
    cal = f.cal
    efficiency = _by_kind(
        f,
        tier,
        scale_up=cal.scale_up_efficiency,
        pcie=cal.pcie_efficiency,
        network=cal.scale_out_efficiency * network_factor,
    )
    return f.hardware.tier_bandwidth[tier] * efficiency


def start_s(f: Facts, tier: int) -> Num:
    """Seconds until the first byte of a collective that reaches this tier."""
    inside, outside = f.cal.scale_up_latency_s, f.cal.scale_out_latency_s
    return _by_kind(f, tier, scale_up=inside, pcie=inside, network=outside)


def hop_s(f: Facts, tier: int) -> Num:
    """Seconds of one step from device to device over this tier."""
    inside, outside = f.cal.scale_up_hop_s, f.cal.scale_out_hop_s
    return _by_kind(f, tier, scale_up=inside, pcie=inside, network=outside)


def ramp(f: Facts, start: Num, s_per_byte: Num) -> Num:
    """Seconds per root of a byte of a collective that starts after ``start`` seconds."""
    return f.cal.collective_ramp * np.sqrt(start * s_per_byte)


def with_curve(f: Facts, op: CollectiveOp, group: Num, stride: Num, cost: TierCost) -> TierCost:
    """The cost, with the measured curve of this operation where the group has the shape of one."""
    if not f.curves.sets:
        return cost
    first, second = (np.clip(np.floor(devices / stride), 1.0, group) for devices in f.hardware.tier_devices[:2])
    curve = f.curves.find(op, f.hardware.curve_set, group, first, second)
    return cost._replace(curve=curve, curves=f.curves)
