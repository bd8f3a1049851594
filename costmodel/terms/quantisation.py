"""Casting the inputs of products to a narrower format: passes over memory beside the products.

Of every linear layer the input and the output's gradient are quantised, each along rows and along columns. How many
bytes one element costs is the recipe's (``costmodel.spec.recipes.Quantisation``): delayed scaling reads a tensor once,
current scaling once more, for its maximum. Where a recipe lets the kernel that computes a tensor, a norm or an
activation function, write it quantised, only what comes from other kernels is cast by itself.
"""

from __future__ import annotations

from costmodel.arrays import Num
from costmodel.facts import Facts
from costmodel.kernels import memory_bound_s
from costmodel.terms import shapes
from costmodel.terms.term import Axes, Outputs, Term


def _evaluate(f: Facts, x: Axes) -> Outputs:
    if not (f.work.quantise_bytes > 0).any():
        return {}
    model, t, up = f.model, shapes.tokens(f, x), shapes.up_projections(f)
    attention, mixer, mlp = model.attention_share, model.mixer_share, model.mlp_share

    def cast(by_itself: Num, of_producer: Num) -> Num:
        return memory_bound_s(f, f.work.quantise_bytes * (by_itself + f.work.quantise_alone * of_producer))

    # Norms and residuals are cut over tp with sequence parallelism, and quantised before they are gathered.
    normed = t * model.hidden / shapes.sequence_shards(f, x)
    latents = attention * model.is_mla * t * (model.q_latent + model.kv_latent)
    mixed = t * (attention * shapes.heads(f, x) * model.v_head_dim + mixer * model.mixer_inner / x.tp)
    first = t * (attention * shapes.qkv_width(f, x) + mixer * model.mixer_input / x.tp)
    into_mixing = (attention + mixer) * normed
    width, shared = mlp * t * model.ffn / x.tp, mlp * t * model.shared_ffn / x.tp
    copies = mlp * shapes.routed_tokens(f, x) * shapes.expert_load(f, x)
    expert_width = shared + copies * model.expert_ffn / x.etp
    # Inputs and outputs of experts come from the permutation; shared experts read the norm's output and add to it.
    into_shared = mlp * normed * (model.shared_ffn > 0)
    return {
        "quantise_dense_s": cast(mixed, into_mixing + latents + mlp * normed + width),
        "quantise_dense_backward_s": cast(into_mixing + latents + first + mlp * normed, up * width),
        "quantise_moe_s": cast(
            mixed + copies * model.expert_hidden, into_mixing + latents + into_shared + expert_width
        ),
        "quantise_moe_backward_s": cast(
            into_mixing + latents + first + copies * model.expert_hidden + into_shared, up * expert_width
        ),
    }


QUANTISATION_PASSES = Term(
    name="quantisation",
    axes=("tp", "cp", "etp", "micro_batch_size", "moe_capacity_factor"),
    gives=("quantise_dense_s", "quantise_dense_backward_s", "quantise_moe_s", "quantise_moe_backward_s"),
    evaluate=_evaluate,
)


def weights_s(f: Facts, params: Num) -> Num:
    """Seconds to quantise ``params`` parameters into both layouts."""
    return params * memory_bound_s(f, f.work.quantise_weight_bytes)
