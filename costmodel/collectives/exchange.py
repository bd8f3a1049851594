"""All-to-all, and what neighbours of a chain or ring send to each other."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools, Num
from costmodel.collectives.cost import TierCost
from costmodel.collectives.tiers import hop_s, ramp, rate, spans, start_s, with_curve
from costmodel.facts import Facts


def remote_units(units: Num, copies: Num, group_limit: Num, groups: Num) -> Num:
    """Mean number of remote units, out of ``units``, that one token reaches with ``copies`` copies drawn at random."""
    return reached_units(units, copies, group_limit, groups) * (units - 1.0) / units


def reached_units(units: Num, copies: Num, group_limit: Num, groups: Num) -> Num:
    """Mean number of units that one token reaches, its own among them.

    ``U (1 - (1 - 1/U)^copies)`` with U the units that the router may choose from: all of them, or, when it limits a
    token to ``group_limit`` of ``groups`` groups of experts, those that the chosen groups lie on (DeepSeek-V3,
    arXiv 2412.19437, section 2.1.2).
    """
    spread = units * group_limit / groups  # a group lies on several units, or on one
    # Several groups lie on one unit, which is reached where one of them is drawn.
    packed = units * (1.0 - (1.0 - np.minimum(group_limit / groups, 1.0)) ** np.maximum(groups / units, 1.0))
    reachable = np.where(group_limit < groups, np.minimum(units, np.maximum(spread, packed)), units)
    reachable = np.maximum(reachable, 1.0)
    return np.asarray(reachable * (1.0 - (1.0 - 1.0 / reachable) ** copies))


def all_to_all(
    f: Facts,
    group: Num,
    stride: Num,
    copies: Num,
    group_limit: Num | float = 1.0,
    groups: Num | float = 1.0,
    *,
    once_per_unit: Bools | bool = True,
) -> TierCost:
    """Token exchange: ``S`` is what one device would send if every token went to one place.

    Each token has ``copies`` for the group's ranks. Deduplicated, it crosses a tier ``once_per_unit`` that it reaches
    (``remote_units``), and inside the innermost unit once per rank; else every copy that is not already in place moves.
    Over N units a plain exchange (one copy) so reaches ``rate * N / (N - 1)`` as nccl-tests counts it
    (nccl-tests issue 130).
    """
    per_byte, plain, latency = np.zeros_like(group), np.zeros_like(group), np.zeros_like(group)
    limit, all_groups = np.asarray(group_limit, dtype=np.float64), np.asarray(groups, dtype=np.float64)
    for tier, inner, units, crosses in spans(f, group, stride):
        if tier == 0:
            once = (units - 1.0) / units
            moved = np.where(once_per_unit, reached_units(group, copies, limit, all_groups), copies) * once
        else:
            once = (group - inner) / group
            moved = np.where(once_per_unit, remote_units(group / inner, copies, limit, all_groups), copies * once)
        seconds = 1.0 / rate(f, tier, f.cal.all_to_all_factor)
        per_byte = np.where(crosses, np.maximum(per_byte, moved * seconds), per_byte)
        plain = np.where(crosses, np.maximum(plain, once * seconds), plain)
        latency = np.where(crosses, start_s(f, tier), latency)
    # The measured exchange is a plain one: this one lasts as long as one with as many bytes on the slowest link.
    as_plain = np.where(plain > 0, per_byte / np.where(plain > 0, plain, 1.0), 1.0)
    cost = TierCost(latency, per_byte, ramp(f, latency, per_byte), curve_bytes=as_plain)
    return with_curve(f, "all_to_all", group, stride, cost)


def neighbours(f: Facts, group: Num, stride: Num) -> TierCost:
    """Every member of a chain or ring to its neighbour at once: the rate of the outermost tier that the group spans.

    Some pair of neighbours crosses it, and the others wait for that pair.
    """
    span = group * stride
    per_byte, latency = 1.0 / rate(f, 0) + np.zeros_like(span), hop_s(f, 0) + np.zeros_like(span)
    for tier in range(1, len(f.hardware.tier_bandwidth)):
        outside = span > f.hardware.tier_devices[tier - 1]
        per_byte = np.where(outside, 1.0 / rate(f, tier), per_byte)
        latency = np.where(outside, hop_s(f, tier), latency)
    # One pair in a domain, or one between two of them.
    inside = np.where(span > f.hardware.tier_devices[0], 1.0, 2.0)
    within = np.where(span > f.hardware.tier_devices[1], 1.0, 2.0)
    curve = f.curves.find("send_recv", f.hardware.curve_set, np.full_like(span, 2.0), inside, within)
    return TierCost(latency, per_byte, ramp(f, latency, per_byte), curve, curves=f.curves)
