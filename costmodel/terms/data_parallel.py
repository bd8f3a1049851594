"""Gradient reduction and parameter gathering over the data-parallel meshes.

Dense parameters are reduced over ``dp * cp`` ranks, expert parameters over ``expert_dp = tp cp dp / (ep etp)``
ranks. What is sharded is cut over ``dp_shard * cp``; with ``dp_replicate > 1`` (HSDP) the shards are all-reduced once
more across the replicas. Seconds per byte of the *full* (unsharded) buffer, with latency, so that stages of any size
share one term. Where stage 1 deals whole tensors to ranks, gradients are all-reduced as without it and a gather is the
broadcast of one rank's tensors. Under ZeRO++ a backward pass gathers inside the scale-up domain (hpZ), and gradients
are reduced by two all-to-alls, one inside it and one across (qgZ).
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools, Num, num
from costmodel.collectives import TierCost, all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from costmodel.collectives.tiers import members
from costmodel.curves import NO_CURVE
from costmodel.facts import Facts
from costmodel.terms import groups, zero_plus
from costmodel.terms.term import Axes, Outputs, Term


def _reduction(f: Facts, shards: Num, replicas: Num, stride: Num, sharded: Bools) -> TierCost:
    """Gradients: an all-reduce when none are sharded, else a reduce-scatter and an all-reduce of the shard."""
    everyone = all_reduce(f, shards * replicas, stride)
    scatter = reduce_scatter(f, shards, stride)
    across = all_reduce(f, replicas, stride * shards)
    has_replicas = replicas > 1.0
    latency = np.where(sharded, scatter.latency_s + np.where(has_replicas, across.latency_s, 0.0), everyone.latency_s)
    per_byte = np.where(
        sharded, scatter.s_per_byte + np.where(has_replicas, across.s_per_byte / shards, 0.0), everyone.s_per_byte
    )
    per_root = np.where(
        sharded,
        scatter.s_per_root_byte + np.where(has_replicas, across.s_per_root_byte / np.sqrt(shards), 0.0),
        everyone.s_per_root_byte,
    )
    # What two collectives do one after the other was not measured.
    curve = np.where(sharded, np.where(has_replicas, NO_CURVE, scatter.curve), everyone.curve)
    return TierCost(latency, per_byte, per_root, curve)


def _two_hops(f: Facts, shards: Num, inside: Num, stride: Num) -> TierCost:
    """A reduction by all-to-alls: every rank gets its pieces inside the node first, then what is left from outside.

    Each hop sends one piece to every other rank; the second has ``1 / inside`` of the bytes (Wang 2023, arXiv
    2306.10209, section 3.3).
    """
    across, one = shards / inside, np.ones_like(shards)
    first, second = all_to_all(f, inside, stride, one), all_to_all(f, across, stride * inside, one)
    return TierCost(
        first.latency_s + second.latency_s,
        first.s_per_byte + second.s_per_byte / inside,
        first.s_per_root_byte + second.s_per_root_byte / np.sqrt(inside),
    )


def _with(first: TierCost, other: TierCost, where: Bools) -> TierCost:
    """``other`` where it is asked for."""
    return TierCost(
        np.where(where, other.latency_s, first.latency_s),
        np.where(where, other.s_per_byte, first.s_per_byte),
        np.where(where, other.s_per_root_byte, first.s_per_root_byte),
        np.where(where, other.curve, first.curve),
    )


def exchanged_s(f: Facts, o: Outputs, kind: str, size_bytes: Num) -> Num:
    """Seconds of one collective of a ``kind`` (``reduce``, ``expert_gather``, ...) of so many unsharded bytes.

    Args:
        size_bytes: ``(rows,)``, or ``(rows, stages)``.
    """
    latency, per_byte, per_root = o[f"{kind}_latency_s"], o[f"{kind}_s_per_byte"], o[f"{kind}_s_per_root_byte"]
    cost = TierCost(latency, per_byte, per_root, o[f"{kind}_curve"], curves=f.curves)
    if size_bytes.ndim > cost.s_per_byte.ndim > 0:
        cost = cost.by_stage()
    return cost.seconds(size_bytes)


def _shards(f: Facts, x: Axes) -> Outputs:
    """Ranks over which parameters, gradients and optimizer may be cut, and with hpZ those of one scale-up domain."""
    found: dict[str, Num] = {}
    for prefix, (shards, stride) in (("", groups.shards(x)), ("expert_", groups.expert_shards(x))):
        found[f"{prefix}shards"] = shards
        if (x.zero_plus > 0).any():
            found[f"{prefix}shards_in_domain"] = members(f, shards, stride)[0]
    return found


def _exchanges(f: Facts, x: Axes) -> Outputs:
    shards, replicas = groups.shards(x).size, groups.replicas(x).size
    deals = (x.zero_stage == 1) & (f.work.stage_1_deals_tensors > 0)
    scatters = (x.zero_stage >= 1) & ~deals
    quantised, second_copy = zero_plus.has(x.zero_plus, "qgz"), zero_plus.has(x.zero_plus, "hpz")
    found: dict[str, Num] = {}
    for prefix, (own_shards, stride), own_replicas in (
        ("", groups.shards(x), replicas),
        ("expert_", groups.expert_shards(x), groups.expert_replicas(x).size),
    ):
        costs = {
            "reduce": _reduction(f, own_shards, own_replicas, stride, scatters),
            "gather": all_gather(f, own_shards, stride),
        }
        if deals.any():
            costs["gather"] = _with(costs["gather"], broadcast(f, own_shards, stride), deals)
        if (x.zero_plus > 0).any():
            inside = members(f, own_shards, stride)[0]
            costs["reduce"] = _with(costs["reduce"], _two_hops(f, own_shards, inside, stride), quantised)
            costs["gather_again"] = _with(costs["gather"], all_gather(f, inside, stride), second_copy)
        for kind, cost in costs.items():
            found |= {
                f"{prefix}{kind}_latency_s": cost.latency_s,
                f"{prefix}{kind}_s_per_byte": cost.s_per_byte,
                f"{prefix}{kind}_s_per_root_byte": cost.s_per_root_byte,
                f"{prefix}{kind}_curve": cost.curve,
            }
    found["layer_tensors"] = f.model.layer_tensors + 0.0 * shards
    found["expert_layer_tensors"] = f.model.mlp_tensors * f.model.experts / x.ep
    return found | {"dp_leaves_domain": num(x.tp * shards * replicas > f.hardware.tier_devices[0])}


SHARDS = Term(
    name="shards",
    axes=("tp", "cp", "ep", "etp", "dp_shard", "zero_plus"),
    gives=("shards", "shards_in_domain", "expert_shards", "expert_shards_in_domain"),
    evaluate=_shards,
)
DATA_PARALLEL = Term(
    name="data_parallel",
    axes=("tp", "cp", "ep", "etp", "dp_shard", "dp_replicate", "zero_stage", "zero_plus"),
    gives=(
        *(
            f"{prefix}{kind}_{part}"
            for prefix in ("", "expert_")
            for kind in ("reduce", "gather", "gather_again")
            for part in ("latency_s", "s_per_byte", "s_per_root_byte", "curve")
        ),
        "layer_tensors",
        "expert_layer_tensors",
        "dp_leaves_domain",
    ),
    evaluate=_exchanges,
)
