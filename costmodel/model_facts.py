"""A model as the numbers that terms read: widths, counts, and parameters of the average layer."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.arrays import Num, num
from costmodel.spec.model import ModelSpec

UNBOUNDED = float(2**62)


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A model as numbers. Widths are in elements; parameter counts are of one layer before any cut.

    Attributes:
        qk_head_dim, v_head_dim: width of one head in scores and in values.
        q_latent, kv_latent: inputs of the two up-projections of multi-head latent attention, 0 without.
        kv_rope_width: the rotary part of the compressed keys, 0 without.
        window: sliding window in tokens; ``window_share`` is the share of layers that use it.
        attention_share, mixer_share, mlp_share: shares of the layers that have attention, a mixer with a fixed-size
            state, an MLP: 1, 0, 1 but for hybrids, whose layers are priced as the average over all of them.
        attention_gate: 1 where the query projection computes an output gate too.
        mixer_input, mixer_inner, mixer_mixed: of a mixer the widths of its input projection, of its output
            projection's input, and of keys, queries and values together; ``mixer_state``: elements of its state.
        dense_layers: layers without experts; all when there are none.
        expert_hidden: width that experts read and write: ``hidden``, or the latent that tokens are projected to.
        mtp_depth: of one prediction module, in average layers: 1 where layers are alike.
        group_limit, groups: a token visits experts of so many of so many groups; 1 of 1 when unlimited.
        rms_norm: 1 where norms are root mean squares: those with weights and without biases.
        layer_tensors: weights and biases of a layer with a dense MLP, its queries, keys and values being one tensor;
            ``mlp_tensors``: those of its MLP, or of one expert.
        attention_params, dense_mlp_params, expert_params: of the average layer, expert_params of one expert in it;
            ``moe_shared_params``: router and shared experts.
    """

    hidden: Num
    heads: Num
    kv_heads: Num
    qk_head_dim: Num
    v_head_dim: Num
    is_mla: Num
    q_latent: Num
    kv_latent: Num
    kv_rope_width: Num
    window: Num
    window_share: Num
    attention_share: Num
    mixer_share: Num
    mlp_share: Num
    attention_gate: Num
    mixer_input: Num
    mixer_inner: Num
    mixer_mixed: Num
    mixer_state: Num
    ffn: Num
    gated: Num
    vocab: Num
    dense_layers: Num
    moe_layers: Num
    experts: Num
    top_k: Num
    expert_ffn: Num
    expert_hidden: Num
    shared_ffn: Num
    group_limit: Num
    groups: Num
    mtp_layers: Num
    mtp_depth: Num
    tied: Num
    norms: Num
    rms_norm: Num
    layer_tensors: Num
    mlp_tensors: Num
    attention_params: Num
    dense_mlp_params: Num
    expert_params: Num
    moe_shared_params: Num
    norm_params: Num
    other_params: Num

    @classmethod
    def of(cls, model: ModelSpec) -> ModelFacts:
        """The facts of one model."""
        mla, moe, params = model.mla, model.moe, model.params
        mixer = model.hybrid.mixer if model.hybrid else None
        layers, dense = model.num_layers, model.num_dense_layers
        attention, mixers, mlps = (
            count / layers for count in (model.num_attention_layers, model.num_mixer_layers, model.num_mlp_layers)
        )
        qk_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim if mla else model.head_dim
        return cls(
            hidden=num(model.hidden_size),
            heads=num(model.num_heads),
            kv_heads=num(model.num_heads if mla else model.num_kv_heads),
            qk_head_dim=num(qk_dim),
            v_head_dim=num(mla.v_head_dim if mla else model.head_dim),
            is_mla=num(mla is not None),
            q_latent=num((mla.q_lora_rank or 0) if mla else 0),
            kv_latent=num(mla.kv_lora_rank if mla else 0),
            kv_rope_width=num(mla.qk_rope_head_dim if mla else 0),
            window=num(model.sliding_window or UNBOUNDED),
            window_share=num(model.num_sliding_layers / model.num_attention_layers),
            attention_share=num(attention),
            mixer_share=num(mixers),
            mlp_share=num(mlps),
            attention_gate=num(model.attention_output_gate),
            mixer_input=num(mixer.projected_width if mixer else 0),
            mixer_inner=num(mixer.inner_width if mixer else 0),
            mixer_mixed=num(mixer.mixed_width if mixer else 0),
            mixer_state=num(mixer.state_elements if mixer else 0),
            ffn=num(model.ffn_hidden_size),
            gated=num(model.gated_mlp),
            vocab=num(model.vocab_size),
            dense_layers=num(dense),
            moe_layers=num(layers - dense),
            experts=num(moe.num_experts if moe else 1),
            top_k=num(moe.top_k if moe else 1),
            expert_ffn=num(moe.expert_ffn_hidden_size if moe else 0),
            expert_hidden=num((moe.latent_size if moe else None) or model.hidden_size),
            shared_ffn=num(moe.shared_expert_ffn_hidden_size if moe else 0),
            group_limit=num((moe.max_groups_per_token if moe else None) or 1),
            groups=num((moe.num_groups if moe and moe.max_groups_per_token else None) or 1),
            mtp_layers=num(model.num_mtp_layers),
            mtp_depth=num(_mtp_depth(model)),
            tied=num(model.tie_word_embeddings),
            norms=num(model.norms_per_layer),
            rms_norm=num(model.norm_weight and not model.norm_bias),
            layer_tensors=num(_layer_tensors(model)),
            mlp_tensors=num(2 + model.gated_mlp),
            attention_params=num(attention * params.attention_per_layer + mixers * params.mixer_per_layer),
            dense_mlp_params=num(mlps * params.dense_mlp_per_layer),
            expert_params=num(mlps * params.per_expert),
            moe_shared_params=num(mlps * params.expert_mlp(0)),
            norm_params=num(params.norms_per_layer),
            other_params=num(params.position_embedding + params.embedding_norm + params.final_norm),
        )


def _layer_tensors(model: ModelSpec) -> int:
    attention = 2 + model.qkv_bias + model.attention_out_bias
    norms = model.norms_per_layer * (model.norm_weight + model.norm_bias)
    return attention + norms + (2 + model.gated_mlp) * (1 + model.mlp_bias)


def _mtp_depth(model: ModelSpec) -> float:
    """A prediction module has attention and an MLP; where a layer is only one of them that is more than a layer."""
    if model.num_mlp_layers == model.num_layers:
        return 1.0
    params, layers = model.params, model.num_layers
    mlp = params.expert_mlp(params.num_experts) if model.moe else params.dense_mlp_per_layer
    mixers = params.num_attention_layers * params.attention_per_layer + params.num_mixer_layers * params.mixer_per_layer
    average = (mixers + model.num_mlp_layers * mlp) / layers + params.norms_per_layer
    return (params.attention_per_layer + mlp + 2 * params.norms_per_layer) / average
