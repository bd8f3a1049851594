"""Compute of the feed-forward block: the dense MLP, and the experts with their router and shared experts.

Where not every layer has one, a layer costs its share of it.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Num
from costmodel.facts import Facts
from costmodel.kernels import gemm_s, memory_bound_s
from costmodel.terms import shapes
from costmodel.terms.term import Axes, Outputs, Term

_UNFUSED_GATE_TENSORS = 2.0  # write the function of the gate, read it again


def _activation_s(f: Facts, rows: Num, width: Num) -> Num:
    """The elementwise function between the projections: reads its one or two inputs, writes one output.

    A gated one that isn't fused writes and reads the function of the one before their product.
    """
    tensors = shapes.up_projections(f) + 1.0 + _UNFUSED_GATE_TENSORS * f.model.gated * (1.0 - f.work.fused_pointwise)
    return memory_bound_s(f, rows * width * tensors * f.work.activation_bytes)


def _mlp_s(f: Facts, rows: Num, width: Num, outer: Num) -> Num:
    """Forward seconds of one MLP of ``width`` features on this rank, between ``outer`` ones."""
    up = gemm_s(f, rows, shapes.up_projections(f) * width, outer)
    return up + gemm_s(f, rows, outer, width)


def _dense(f: Facts, x: Axes) -> Outputs:
    t, width = shapes.tokens(f, x), f.model.ffn / x.tp
    share = f.model.mlp_share
    return {
        "dense_mlp_s": share * _mlp_s(f, t, width, f.model.hidden),
        "dense_activation_s": share * _activation_s(f, t, width),
    }


def _experts(f: Facts, x: Axes) -> Outputs:
    t = shapes.tokens(f, x)
    routed = shapes.routed_tokens(f, x)
    width = f.model.expert_ffn / x.etp
    local = f.model.experts / x.ep
    # Products of the local experts, each at the mean expert's rows, times the grouped factor. One kernel starts once;
    # a kernel for each expert starts one at a time on each stream. The fullest device sets its group's pace.
    load = shapes.expert_load(f, x)
    saved = np.maximum(local - np.maximum(local / f.work.expert_streams, 1.0), 0.0)
    each = _mlp_s(f, routed / local * load, width, f.model.expert_hidden)
    grouped = local * each - saved * 2.0 * f.cal.gemm_launch_s * f.cal.compute_multiplier
    shared_width = f.model.shared_ffn / x.tp
    shared = _mlp_s(f, t, shared_width, f.model.hidden) + _activation_s(f, t, shared_width)
    router = gemm_s(f, t / x.tp, f.model.experts, f.model.hidden)
    latent = f.model.expert_hidden * (f.model.expert_hidden != f.model.hidden)
    if np.any(latent):  # every token is projected to what its experts work on, and back
        router = router + gemm_s(f, t / x.tp, latent, f.model.hidden) + gemm_s(f, t / x.tp, f.model.hidden, latent)
    # Permutation to expert order and back: each copy is read and written once on either side of the experts.
    moved = routed * shapes.capacity_over_mean(x)
    permute = memory_bound_s(f, 4.0 * moved * f.model.expert_hidden * f.work.activation_bytes)
    share = f.model.mlp_share
    return {
        "shared_mlp_s": share * shared,
        "expert_mlp_s": share * (grouped * f.cal.grouped_gemm_factor + shared + router),
        "expert_activation_s": share * (_activation_s(f, routed * load, width) + permute),
    }


DENSE_MLP = Term(
    name="dense_mlp",
    axes=("tp", "cp", "micro_batch_size"),
    gives=("dense_mlp_s", "dense_activation_s"),
    evaluate=_dense,
)
EXPERTS = Term(
    name="experts",
    axes=("tp", "cp", "ep", "etp", "micro_batch_size", "moe_capacity_factor"),
    gives=("shared_mlp_s", "expert_mlp_s", "expert_activation_s"),
    evaluate=_experts,
)
