"""Gradient reduction and parameter gathering over the data-parallel meshes.

Dense parameters are reduced over ``dp * cp`` ranks, expert parameters over ``expert_dp = tp cp dp / (ep etp)``
ranks. What is sharded is cut over ``dp_shard * cp``; with ``dp_replicate > 1`` (HSDP) the shards are all-reduced once
more across the replicas. Seconds per byte of the *full* (unsharded) buffer, with latency, so that stages of any size
share one term.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Num, num
from costmodel.collectives import TierCost, all_gather, all_reduce, reduce_scatter
from costmodel.curves import NO_CURVE
from costmodel.facts import Facts
from costmodel.terms.term import Axes, Outputs, Term


def _reduction(f: Facts, shards: Num, replicas: Num, stride: Num, zero_stage: Num) -> TierCost:
    """Gradients: an all-reduce when nothing is sharded, else a reduce-scatter and an all-reduce of the shard."""
    everyone = all_reduce(f, shards * replicas, stride)
    scatter = reduce_scatter(f, shards, stride)
    across = all_reduce(f, replicas, stride * shards)
    sharded = zero_stage >= 1
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


def _evaluate(f: Facts, x: Axes) -> Outputs:
    shards, replicas = x.dp_shard * x.cp, x.dp_replicate
    expert_shards = x.tp * x.cp * x.dp_shard / (x.ep * x.etp)
    # With few shards the expert mesh can be smaller than one shard group: what is left are replicas.
    expert_replicas = np.where(expert_shards >= 1.0, replicas, replicas * expert_shards)
    expert_shards = np.maximum(expert_shards, 1.0)
    dense = _reduction(f, shards, replicas, x.tp, x.zero_stage)
    expert = _reduction(f, expert_shards, expert_replicas, x.ep * x.etp, x.zero_stage)
    gather = all_gather(f, shards, x.tp)
    expert_gather = all_gather(f, expert_shards, x.ep * x.etp)
    return {
        "reduce_latency_s": dense.latency_s,
        "reduce_s_per_byte": dense.s_per_byte,
        "reduce_s_per_root_byte": dense.s_per_root_byte,
        "reduce_curve": dense.curve,
        "expert_reduce_latency_s": expert.latency_s,
        "expert_reduce_s_per_byte": expert.s_per_byte,
        "expert_reduce_s_per_root_byte": expert.s_per_root_byte,
        "expert_reduce_curve": expert.curve,
        "gather_latency_s": gather.latency_s,
        "gather_s_per_byte": gather.s_per_byte,
        "gather_s_per_root_byte": gather.s_per_root_byte,
        "gather_curve": gather.curve,
        "expert_gather_latency_s": expert_gather.latency_s,
        "expert_gather_s_per_byte": expert_gather.s_per_byte,
        "expert_gather_s_per_root_byte": expert_gather.s_per_root_byte,
        "expert_gather_curve": expert_gather.curve,
        "dp_leaves_domain": num(x.tp * shards * replicas > f.hardware.tier_devices[0]),
        "shards": shards,
        "expert_shards": expert_shards,
    }


DATA_PARALLEL = Term(
    name="data_parallel",
    axes=("tp", "cp", "ep", "etp", "dp_shard", "dp_replicate", "zero_stage"),
    evaluate=_evaluate,
)
