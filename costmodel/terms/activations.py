"""Saved activations of one layer for one micro-batch, by what is recomputed, and what selective recompute runs again.

Counted tensor by tensor, so that a GPT block without gating, with dropout and 16-bit activations gives the published
``34 s b h`` (+ ``5 a s^2 b`` without a fused attention core), its tensor-parallel form ``s b h (10 + 24/t + 5 a s /
(h t))`` and with sequence parallelism everything over ``t`` (Korthikanti 2022, arXiv 2205.05198, equations 1-4).
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Num
from costmodel.facts import Facts
from costmodel.recompute_modules import is_named
from costmodel.spec.plan import RECOMPUTES
from costmodel.terms import shapes
from costmodel.terms.term import Axes, Outputs, Term

RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL = (RECOMPUTES.index(name) for name in ("none", "selective", "full"))


def block_bytes_per_token(
    *,
    hidden: Num,
    qkv_width: Num,
    output_width: Num,
    ffn_input_width: Num,
    ffn_width: Num,
    sequence_shards: Num,
    element_bytes: Num,
    input_bytes: Num | None = None,
    twice_bytes: Num | float = 0.0,
    dropout: float = 0.0,
    norms_saved: Num | float = 1.0,
    sub_blocks: Num | float = 2.0,
) -> Num:
    """Bytes per token that one attention block and one MLP save on one rank, with a fused attention core.

    Widths are per rank. ``dropout`` counts two one-byte masks. ``norms_saved`` 0 drops the outputs of both norms,
    which are the inputs of the QKV and the up-projection: they are recomputed from the norms' inputs. Each of the
    ``sub_blocks`` saves its norm's input and output. What only a product reads again, the norms' outputs and the MLP's
    product, takes ``input_bytes`` an element where inputs are kept quantised; attention's output, which its own
    backward pass reads too, ``twice_bytes`` more.
    """
    narrow = element_bytes if input_bytes is None else input_bytes
    norms = sub_blocks * (element_bytes + norms_saved * narrow) * hidden
    residual = norms + sub_blocks * dropout * hidden
    cut = (qkv_width + ffn_input_width) * element_bytes + ffn_width * narrow
    cut = cut + output_width * (element_bytes + twice_bytes)
    return residual / sequence_shards + cut


def score_matrix_bytes_per_token(*, heads: Num, seq_len: Num, dropout: float = 1.0) -> Num:
    """Bytes per token that an unfused core saves, ``5 a s``: outputs of softmax and dropout, 2 each, and a mask."""
    return heads * seq_len * (2.0 + 3.0 * dropout)


def _layer(f: Facts, x: Axes) -> Outputs:
    t, element, shards = shapes.tokens(f, x), f.work.activation_bytes, shapes.sequence_shards(f, x)
    model = f.model
    # A mixer saves what its input projection gives and what its output projection reads, as attention does.
    output = (
        shapes.heads(f, x) * model.v_head_dim * model.attention_share + model.mixer_share * model.mixer_inner / x.tp
    )
    gate = model.attention_gate * shapes.heads(f, x) * model.v_head_dim
    qkv = (shapes.qkv_width(f, x) + gate) * model.attention_share + model.mixer_share * model.mixer_input / x.tp
    latent = model.is_mla * (model.q_latent + model.kv_latent + model.kv_rope_width) * model.attention_share
    routed = shapes.routed_tokens(f, x) / t * shapes.expert_load(f, x)
    up = shapes.up_projections(f)
    dense_in, dense_out = model.mlp_share * up * model.ffn / x.tp, model.mlp_share * model.ffn / x.tp
    # An expert saves its permuted input, the up-projections' outputs and the activation's output, per routed copy.
    shared = model.mlp_share * (up + 1.0) * model.shared_ffn / x.tp
    # Only a product reads the permuted input again.
    permuted = model.expert_hidden * f.work.saved_input_bytes / element
    expert_in = model.mlp_share * routed * (permuted + up * model.expert_ffn / x.etp)
    expert_out = model.mlp_share * routed * model.expert_ffn / x.etp

    scores = score_matrix_bytes_per_token(heads=shapes.heads(f, x), seq_len=f.work.seq_len)
    scores = scores * (1.0 - f.work.fused_attention) * model.attention_share

    def again(module: str) -> Num:
        return is_named(x.recompute_modules, f.work.usual_modules, module)

    def saved(kind_in: Num, kind_out: Num, norms: Num | float, latents: Num | float, core: Num | float) -> Num:
        per_token = block_bytes_per_token(
            hidden=model.hidden,
            qkv_width=qkv * (1.0 - latents) + latent,
            output_width=output,
            ffn_input_width=kind_in,
            ffn_width=kind_out,
            sequence_shards=shards,
            element_bytes=element,
            input_bytes=f.work.saved_input_bytes,
            twice_bytes=f.work.saved_twice_bytes,
            norms_saved=1.0 - norms,
            sub_blocks=shapes.sub_blocks(f),
        )
        return t * (per_token + scores * (1.0 - core)) * f.cal.activation_coefficient

    norms, latents, core = again("layernorm"), again("mla_up_proj") * model.is_mla, again("core_attn")
    mlp, moe = 1.0 - again("mlp"), 1.0 - again("moe")
    shared_kept, act_kept = moe * (1.0 - again("shared_experts")), moe * (1.0 - again("moe_act"))

    def back_at_once(*dropped: Num) -> Num:
        """Bytes of the module that is back in memory, the largest at the worst: they come back one after another."""
        narrow = f.work.saved_input_bytes
        of_both = (norms * narrow * model.hidden / shards, latents * qkv * element, core * scores)
        most: Num = np.maximum.reduce(np.broadcast_arrays(*of_both, *dropped))
        return t * most * f.cal.activation_coefficient

    def selected(whole: Num) -> tuple[Num, Num]:
        """(kept, back at once) of a dense layer that keeps every second product, as PyTorch counts them: Q, V, gate."""
        q = shapes.heads(f, x) * model.qk_head_dim
        v = shapes.kv_heads(f, x) * model.v_head_dim
        mixed = np.where(model.is_mla > 0, qkv / 2.0, q + v) * model.attention_share
        mixed = mixed + model.mixer_share * model.mixer_input / x.tp / 2.0
        # What tensor parallelism reduced over its ranks is not communicated again.
        inputs = (1.0 + (x.tp > 1)) * model.hidden / shards
        gate = model.mlp_share * model.ffn / x.tp
        kept = t * (inputs + mixed + output + gate) * element * f.cal.activation_coefficient
        return kept, np.maximum(whole - kept, 0.0)

    of_mlp = (1.0 - mlp) * (dense_in * element + dense_out * f.work.saved_input_bytes)
    of_moe = (1.0 - moe) * ((expert_in + shared) * element + expert_out * f.work.saved_input_bytes)
    of_shared = (1.0 - shared_kept) * shared * element
    of_act = (1.0 - act_kept) * expert_out * f.work.saved_input_bytes
    boundary = t * model.hidden * element / shards
    dense_whole = saved(dense_in, dense_out, 0.0, 0.0, 0.0)
    dense_kept, dense_back = selected(dense_whole)
    by_products = (f.work.selects_products > 0) & (x.recompute_modules == 0)
    hot = t * shapes.uneven_share(f, x) * f.cal.activation_coefficient
    return {
        "dense_saved_bytes": dense_whole,
        "dense_selective_bytes": np.where(
            by_products, dense_kept, saved(dense_in * mlp, dense_out * mlp, norms, latents, core)
        ),
        "dense_back_bytes": np.where(by_products, dense_back, back_at_once(of_mlp)),
        "moe_saved_bytes": saved(expert_in + shared, expert_out, 0.0, 0.0, 0.0),
        "moe_selective_bytes": saved(
            expert_in * moe + shared * shared_kept, expert_out * act_kept, norms, latents, core
        ),
        "moe_back_bytes": back_at_once(of_moe, of_shared, of_act),
        "boundary_bytes": boundary,
        "moe_saved_hot_bytes": hot * (expert_in * element + expert_out * f.work.saved_input_bytes),
        "moe_selective_hot_bytes": hot * (expert_in * moe * element + expert_out * act_kept * f.work.saved_input_bytes),
    }


ACTIVATIONS = Term(
    name="activations",
    axes=("tp", "cp", "etp", "micro_batch_size", "recompute_modules", "moe_capacity_factor"),
    gives=(
        "dense_saved_bytes",
        "dense_selective_bytes",
        "dense_back_bytes",
        "moe_saved_bytes",
        "moe_selective_bytes",
        "moe_back_bytes",
        "boundary_bytes",
        "moe_saved_hot_bytes",
        "moe_selective_hot_bytes",
    ),
    evaluate=_layer,
)


_MODULES = ("core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "moe", "shared_experts")


def _again(f: Facts, x: Axes) -> Outputs:
    return {f"again_{name}": is_named(x.recompute_modules, f.work.usual_modules, name) for name in _MODULES}


AGAIN = Term(
    name="again",
    axes=("recompute_modules",),
    gives=tuple(f"again_{name}" for name in _MODULES),
    evaluate=_again,
)


def _communicators(f: Facts, x: Axes) -> Outputs:
    """How many groups of ranks a device talks in, each with buffers of its own."""
    several = (x.tp > 1, x.cp > 1, x.pp > 1, x.dp > 1, x.ep > 1)
    return {"communicators": sum((np.where(used, 1.0, 0.0) for used in several), start=np.zeros(()))}


COMMUNICATORS = Term(
    name="communicators", axes=("tp", "cp", "pp", "dp", "ep"), gives=("communicators",), evaluate=_communicators
)
