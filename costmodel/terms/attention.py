"""Compute of what mixes tokens: attention's projections and core, or a mixer with a fixed-size state; norms, residual.

Layers of a hybrid cost the average over all of them.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Num
from costmodel.facts import Facts
from costmodel.kernels import attention_core_s, gemm_s, memory_bound_s
from costmodel.terms import shapes
from costmodel.terms.term import Axes, Outputs, Term

_NORM_TENSORS = 2.0  # read the input, write the normalised output
_RESIDUAL_TENSORS = 3.0  # read both addends, write the sum
_ROTARY_TENSORS = 2.0  # read and write Q and K in place
_SCAN_TENSORS = 4.0  # of a mixer's inner width: values read for the states, the output written, read and normalised
_STATE_BYTES = 4.0
_STATE_PASSES = 4.0  # states of chunks are written, read and written when they are passed on, read for the output
_SCAN_BACKWARD = 2.5  # states again, then two gradients where there was one product; states and theirs move 10 times


def _projections_s(f: Facts, x: Axes) -> tuple[Num, Num]:
    """Forward seconds of (all projections, the part that recomputing the latent up-projections repeats)."""
    model, t = f.model, shapes.tokens(f, x)
    h, heads = model.hidden, shapes.heads(f, x)
    # Multi-head latent attention: down-projections are computed whole on every tp rank, up-projections are cut by
    # heads.
    query_input = h * (1.0 - model.is_mla) + model.is_mla * (model.q_latent + h * (model.q_latent == 0))
    query = heads * model.qk_head_dim
    gate = model.attention_gate * query
    plain_width = (1.0 - model.is_mla) * (shapes.qkv_width(f, x) + gate)
    plain = gemm_s(f, t, plain_width, h)
    down = gemm_s(f, t, model.is_mla * model.q_latent, h) + gemm_s(f, t, model.kv_latent + model.kv_rope_width, h)
    nope_and_value = heads * (model.qk_head_dim - model.kv_rope_width + model.v_head_dim)
    up = gemm_s(f, t, model.is_mla * query, query_input) + gemm_s(f, t, model.is_mla * nope_and_value, model.kv_latent)
    out = gemm_s(f, t, h, heads * model.v_head_dim)
    return plain + down + up + out, up


def _mixer_s(f: Facts, x: Axes) -> tuple[Num, Num]:
    """Forward seconds of a mixer's (projections, everything between them).

    Between them: a convolution, the scan, a norm with a gate. The scan goes by chunks (arXiv 2405.21060, section 6):
    products inside a chunk, the state after each, states passed on, products with the state before. Its kernels hand
    the 32-bit states of all chunks to each other through memory, and their products are small.
    """
    model, t = f.model, shapes.tokens(f, x)
    linear = gemm_s(f, t, model.mixer_input / x.tp, model.hidden) + gemm_s(f, t, model.hidden, model.mixer_inner / x.tp)
    moved = model.mixer_input + 2.0 * model.mixer_mixed + _SCAN_TENSORS * model.mixer_inner
    states = _STATE_PASSES * _STATE_BYTES * model.mixer_state / f.cal.scan_chunk_tokens
    passes = memory_bound_s(f, t / x.tp * (moved * f.work.activation_bytes + states))
    # Into the state and out of it; and inside a chunk, where half is masked.
    flops = t / x.tp * (4.0 * model.mixer_state + f.cal.scan_chunk_tokens * model.mixer_inner)
    products = flops / (f.hardware.attention_peak_flops * f.cal.scan_efficiency) * f.cal.compute_multiplier
    return linear, passes + products


def _evaluate(f: Facts, x: Axes) -> Outputs:
    element = f.work.activation_bytes
    sharded = shapes.tokens(f, x) / shapes.sequence_shards(f, x) * f.model.hidden * element
    fused, rms = f.work.fused_pointwise > 0, f.model.rms_norm > 0
    rotary_tensors = np.where(fused, _ROTARY_TENSORS, f.cal.unfused_rotary_tensors)
    norm_tensors = np.where(
        fused | ~rms, _NORM_TENSORS, f.cal.unfused_norm_tensors
    )  # PyTorch has a kernel of LayerNorm
    rotary = shapes.tokens(f, x) * rotary_tensors * element
    rotary = rotary * (shapes.heads(f, x) + shapes.kv_heads(f, x)) * f.model.qk_head_dim
    norms = memory_bound_s(f, f.model.norms * norm_tensors * sharded)
    residual = memory_bound_s(f, shapes.sub_blocks(f) * _RESIDUAL_TENSORS * sharded)
    linear, latent_up = _projections_s(f, x)
    core_forward, core_backward = attention_core_s(f, shapes.tokens(f, x), shapes.heads(f, x))
    slower = np.where(x.cp_balanced > 0, 1.0, shapes.latest_over_mean(f, x))
    core_forward, core_backward = core_forward * slower, core_backward * slower
    if shapes.has_mixers(f):
        attention, mixer = f.model.attention_share, f.model.mixer_share
        mixer_linear, scan = _mixer_s(f, x)
        linear, latent_up, rotary = (
            attention * linear + mixer * mixer_linear,
            attention * latent_up,
            attention * rotary,
        )
        core_forward = attention * core_forward + mixer * scan
        core_backward = attention * core_backward + mixer * _SCAN_BACKWARD * scan
    return {
        "attention_linear_s": linear,
        "latent_up_s": latent_up,
        "attention_core_s": core_forward,
        "attention_core_backward_s": core_backward,
        "norm_s": norms,
        "residual_s": residual + memory_bound_s(f, rotary),
    }


ATTENTION = Term(
    name="attention",
    axes=("tp", "cp", "cp_balanced", "cp_a2a_degree", "micro_batch_size"),
    gives=(
        "attention_linear_s",
        "latent_up_s",
        "attention_core_s",
        "attention_core_backward_s",
        "norm_s",
        "residual_s",
    ),
    evaluate=_evaluate,
)
