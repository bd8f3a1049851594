"""Compute of the attention block: projections, core, norms, residual and rotary passes."""

from __future__ import annotations

from costmodel.arrays import Num
from costmodel.facts import Facts
from costmodel.kernels import attention_core_s, gemm_s, memory_bound_s
from costmodel.terms import shapes
from costmodel.terms.term import Axes, Outputs, Term

_NORM_TENSORS = 2.0  # read the input, write the normalised output
_RESIDUAL_TENSORS = 3.0  # read both addends, write the sum
_ROTARY_TENSORS = 2.0  # read and write Q and K in place


def _projections_s(f: Facts, x: Axes) -> tuple[Num, Num]:
    """Forward seconds of (all projections, the part that recomputing the latent up-projections repeats)."""
    model, t = f.model, shapes.tokens(f, x)
    h, heads = model.hidden, shapes.heads(f, x)
    # Multi-head latent attention: down-projections are computed whole on every tp rank, up-projections are cut by
    # heads.
    query_input = h * (1.0 - model.is_mla) + model.is_mla * (model.q_latent + h * (model.q_latent == 0))
    query = heads * model.qk_head_dim
    plain_width = (1.0 - model.is_mla) * shapes.qkv_width(f, x)
    plain = gemm_s(f, t, plain_width, h)
    down = gemm_s(f, t, model.is_mla * model.q_latent, h) + gemm_s(f, t, model.kv_latent + model.kv_rope_width, h)
    nope_and_value = heads * (model.qk_head_dim - model.kv_rope_width + model.v_head_dim)
    up = gemm_s(f, t, model.is_mla * query, query_input) + gemm_s(f, t, model.is_mla * nope_and_value, model.kv_latent)
    out = gemm_s(f, t, h, heads * model.v_head_dim)
    return plain + down + up + out, up


def _evaluate(f: Facts, x: Axes) -> Outputs:
    element = f.work.activation_bytes
    sharded = shapes.tokens(f, x) / shapes.sequence_shards(f, x) * f.model.hidden * element
    rotary = shapes.tokens(f, x) * _ROTARY_TENSORS * element
    rotary = rotary * (shapes.heads(f, x) + shapes.kv_heads(f, x)) * f.model.qk_head_dim
    norms = memory_bound_s(f, f.model.norms * _NORM_TENSORS * sharded)
    residual = memory_bound_s(f, 2.0 * _RESIDUAL_TENSORS * sharded)
    linear, latent_up = _projections_s(f, x)
    core_forward, core_backward = attention_core_s(f, shapes.tokens(f, x), shapes.heads(f, x))
    return {
        "attention_linear_s": linear,
        "latent_up_s": latent_up,
        "attention_core_s": core_forward,
        "attention_core_backward_s": core_backward,
        "norm_s": norms,
        "residual_s": residual + memory_bound_s(f, rotary),
    }


ATTENTION = Term(name="attention", axes=("tp", "cp", "micro_batch_size"), evaluate=_evaluate)
