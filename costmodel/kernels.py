"""Seconds of one kernel on one device: GEMM, attention core, memory-bound pass.

Elementwise, so every size may be a column.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Num
from costmodel.facts import Facts
from costmodel.flops import mean_attended_tokens

BACKWARD_OVER_FORWARD = 2.0
"""A linear layer's backward is two GEMMs of the forward's size: one for the input's gradient, one for the weight's."""
FLASH_BACKWARD_OVER_FORWARD = 2.5
"""FLOPs of the attention core, backward over forward: five GEMMs against two, since scores are recomputed.

Dao 2023, arXiv 2307.08691, section 3.1.2.
"""


_SCORE_TRAFFIC_BYTES = (1.0 + 2.0 + 2.0 + 1.0) * 2.0 + 1.0  # passes over 16-bit scores, and a mask of one byte


def gemm_s(f: Facts, m: Num, n: Num, k: Num, *, peak_flops: Num | None = None) -> Num:
    """Seconds of ``[m, k] @ [k, n]``; zero when a size is zero.

    ``peak_flops`` is given for products that stay in a wider format than the recipe computes in.

    ``launch + max(2mnk / (peak * e), bytes / bandwidth)`` with
    ``e = gemm_efficiency * k / (k + k_half) * min(m, n) / (min(m, n) + mn_half)``: the roofline-plus-launch form
    fits single GEMMs within 7-8 %, and the two saturation factors carry the loss on thin shards. A dimension off the
    alignment is slower.
    """
    cal = f.cal
    thin = np.minimum(m, n)
    efficiency = cal.gemm_efficiency * k / (k + cal.gemm_k_half) * thin / (thin + cal.gemm_mn_half)
    peak = f.hardware.peak_flops if peak_flops is None else peak_flops
    compute = 2.0 * m * n * k / np.maximum(peak * efficiency, 1.0)
    # n and k come from the model and the cut; m counts tokens, and kernels mask its ragged edge cheaply.
    ragged = (np.mod(n, cal.gemm_alignment) > 0) | (np.mod(k, cal.gemm_alignment) > 0)
    compute = np.where(ragged, compute * cal.misaligned_factor, compute)
    memory = (
        f.work.activation_bytes * (m * k + k * n + m * n) / (f.hardware.memory_bandwidth * cal.pointwise_efficiency)
    )
    exists = (m * n * k) > 0
    return np.where(exists, cal.gemm_launch_s + np.maximum(compute, memory), 0.0) * cal.compute_multiplier


def attention_core_flops(f: Facts, tokens: Num, heads: Num) -> Num:
    """Forward FLOPs of scores and weighted sum on the causal part: ``2 * tokens * keys * heads * (d_qk + d_v)``."""
    keys = mean_attended_tokens(f.work.seq_len, f.model.window, f.model.window_share)
    return 2.0 * tokens * keys * heads * (f.model.qk_head_dim + f.model.v_head_dim)


def attention_core_s(f: Facts, tokens: Num, heads: Num) -> tuple[Num, Num]:
    """Forward and backward seconds of the attention core, fused (FlashAttention-like) or with its scores in memory."""
    forward = attention_core_flops(f, tokens, heads) / (f.hardware.attention_peak_flops * f.cal.attention_efficiency)
    forward = (f.cal.gemm_launch_s + forward) * f.cal.compute_multiplier
    backward = forward * FLASH_BACKWARD_OVER_FORWARD
    if (f.work.fused_attention > 0).all():
        return forward, backward
    unfused = _unfused_core_s(f, tokens, heads)
    fused = f.work.fused_attention > 0
    return np.where(fused, forward, unfused), np.where(fused, backward, unfused * BACKWARD_OVER_FORWARD)


def _unfused_core_s(f: Facts, tokens: Num, heads: Num) -> Num:
    """Forward seconds of two batched GEMMs over the whole score matrix and the passes between them.

    Matrix units take rows of heads whose width keeps them aligned; other heads fall to the vector units (NVIDIA, Matrix
    Multiplication Background, table 1; BLOOM's candidates with 108 and 150 wide heads took a third longer).
    Per score: written, read and written by the softmax, read and written with a mask by dropout, read (Korthikanti
    2022, arXiv 2205.05198, section 4.1, has what of it is kept).
    """
    cal, model = f.cal, f.model
    widths = model.qk_head_dim + model.v_head_dim
    efficiency = cal.gemm_efficiency * widths / (widths + 2.0 * cal.gemm_k_half)
    on_matrix_units = f.hardware.attention_peak_flops * efficiency
    on_vector_units = np.minimum(f.hardware.vector_peak_flops * cal.gemm_efficiency, on_matrix_units)
    odd = (np.mod(model.qk_head_dim, cal.gemm_alignment) > 0) | (np.mod(model.v_head_dim, cal.gemm_alignment) > 0)
    rate = np.where(odd, on_vector_units, on_matrix_units)
    flops = 2.0 * tokens * f.work.seq_len * heads * widths
    products = cal.gemm_launch_s * 2.0 + flops / rate
    passes = memory_bound_s(f, tokens * f.work.seq_len * heads * _SCORE_TRAFFIC_BYTES)
    return products * cal.compute_multiplier + passes


def memory_bound_s(f: Facts, moved_bytes: Num) -> Num:
    """Seconds of an elementwise or norm pass that moves ``moved_bytes`` through device memory."""
    seconds = moved_bytes / (f.hardware.memory_bandwidth * f.cal.pointwise_efficiency)
    return seconds * f.cal.compute_multiplier
