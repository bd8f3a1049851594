"""The model's shape in Megatron-Core's settings; what changes its parameters and has no setting is refused."""

from __future__ import annotations

from typing import Any

from costmodel.spec.layers import Mla, Moe
from planner.export.megatron.core import Core

_FULL_ATTENTION = "which of the layers look at a window is not in the model's shape"
# Field -> (the value that Megatron's GPT has, why there is no word for others).
_ONLY: dict[str, tuple[Any, str]] = {
    "hybrid": (None, "which layers have attention and which a mixer is not in the model's shape: Megatron lists them"),
    "head_bias": (False, "the output projection has no bias"),
    "norm_weight": (True, "norms have weights"),
    "norms_per_layer": (2, "a layer has two norms, before attention and before the MLP"),
    "embedding_norm": (False, "the embedding's output is not normalised"),
    "extra_position_embeddings": (0, "position embeddings are as many as positions"),
    "sliding_window": (None, _FULL_ATTENTION),
}


def say_model(core: Core) -> None:
    """Every field of the model, as a setting or as a refusal."""
    model = core.model
    for field, (value, why) in _ONLY.items():
        if getattr(model, field) != value:
            core.refuse_model(field, why)
    experts_alone = model.moe is not None and model.num_dense_layers == 0
    # Before experts had a width of their own, theirs was the dense one.
    one_width = experts_alone and model.moe is not None and not core.has("moe_ffn_hidden_size", 1)
    width = model.moe.expert_ffn_hidden_size if one_width and model.moe else model.ffn_hidden_size
    core.put("num_layers", model.num_layers)
    core.put("hidden_size", model.hidden_size)
    core.put("ffn_hidden_size", width)
    core.put("num_attention_heads", model.num_heads)
    _say_attention(core)
    core.put("gated_linear_unit", model.gated_mlp)
    core.put("normalization", "LayerNorm" if model.norm_bias else "RMSNorm")
    _say_biases(core)
    core.put("share_embeddings_and_output_weights", model.tie_word_embeddings)
    core.put("vocab_size", model.vocab_size)
    _say_positions(core)
    if model.num_mtp_layers:
        core.put_model("mtp_num_layers", model.num_mtp_layers, "num_mtp_layers")
    if model.moe is not None:
        _say_experts(core, model.moe)
    # Recipes of this size train without it, and what a plan needs is counted without its masks.
    core.put("attention_dropout", 0.0)
    core.put("hidden_dropout", 0.0)


def _say_attention(core: Core) -> None:
    model = core.model
    if model.mla is not None:
        _say_latent(core, model.mla)
    else:
        core.put("kv_channels", model.head_dim)
        if model.num_kv_heads != model.num_heads:
            core.put("num_query_groups", model.num_kv_heads)
        if model.qk_norm == "full":
            core.refuse_model("qk_norm", "queries and keys are normalised head by head")
        core.put("qk_layernorm", model.qk_norm == "head")
    if model.attention_output_gate:
        core.put_model("attention_output_gate", True, "attention_output_gate")
    if model.attention_sinks:
        core.put_model("softmax_type", "learnable", "attention_sinks")


def _say_latent(core: Core, mla: Mla) -> None:
    core.put_model("multi_latent_attention", True, "mla")
    if not core.has("multi_latent_attention"):
        return
    if mla.q_lora_rank is not None:
        core.put("q_lora_rank", mla.q_lora_rank)
    core.put("kv_lora_rank", mla.kv_lora_rank)
    core.put("qk_head_dim", mla.qk_nope_head_dim)
    core.put("qk_pos_emb_head_dim", mla.qk_rope_head_dim)
    core.put("v_head_dim", mla.v_head_dim)
    # The norms of the latents, which latent attention always has here, hang on this.
    core.put("qk_layernorm", True)
    if core.model.hidden_size % core.model.num_heads:
        core.put("kv_channels", mla.v_head_dim)


def _say_biases(core: Core) -> None:
    """Megatron has biases everywhere, nowhere, or on queries, keys and values alone."""
    model = core.model
    fields = ["qkv_bias", "attention_out_bias"]
    fields += ["mlp_bias"] if model.num_dense_layers else []
    fields += ["expert_bias"] if model.moe is not None else []
    biased = {field for field in fields if getattr(model, field)}
    everywhere = biased == set(fields)
    core.put("add_bias_linear", everywhere)
    if everywhere or not biased:
        return
    if biased == {"qkv_bias"} and model.mla is None:
        core.put("add_qkv_bias", True)
        return
    for field in sorted(biased):
        core.refuse_model(field, "biases are everywhere, nowhere, or on queries, keys and values alone")


def _say_positions(core: Core) -> None:
    model, seq_len = core.model, core.plan.seq_len
    known = model.max_position_embeddings or seq_len
    if not model.learned_position_embeddings:
        core.put("position_embedding_type", "rope")
        core.put("max_position_embeddings", max(known, seq_len))
        return
    core.put("position_embedding_type", "learned_absolute")
    core.put("max_position_embeddings", known)
    if known < seq_len:
        core.refuse_model("max_position_embeddings", f"a sequence of {seq_len} tokens needs as many")
    if model.num_mtp_layers:
        core.refuse_model("learned_position_embeddings", "layers of multi-token prediction need rotary positions")


def _say_experts(core: Core, moe: Moe) -> None:
    core.put("num_moe_experts", moe.num_experts)
    core.put("moe_router_topk", moe.top_k)
    if core.has("moe_ffn_hidden_size", 1) or core.model.num_dense_layers:
        core.put_model("moe_ffn_hidden_size", moe.expert_ffn_hidden_size, "moe.expert_ffn_hidden_size")
    if moe.shared_expert_ffn_hidden_size:
        width = moe.shared_expert_ffn_hidden_size
        core.put_model("moe_shared_expert_intermediate_size", width, "moe.shared_expert_ffn_hidden_size")
    if moe.shared_expert_gate:
        core.put_model("moe_shared_expert_gate", True, "moe.shared_expert_gate")
    if moe.latent_size is not None:
        core.put_model("moe_latent_size", moe.latent_size, "moe.latent_size")
    if moe.router_bias:
        core.refuse_model("moe.router_bias", "routers have no bias of their own")
    _say_where_experts_are(core, moe)
    if moe.score_correction_bias:
        # Megatron moves that bias under sigmoid scores only.
        core.put_model("moe_router_score_function", "sigmoid", "moe.score_correction_bias")
        core.put_model("moe_router_enable_expert_bias", True, "moe.score_correction_bias")
    if moe.num_groups is not None and moe.max_groups_per_token is not None:
        core.put_model("moe_router_num_groups", moe.num_groups, "moe.num_groups")
        core.put_model("moe_router_group_topk", moe.max_groups_per_token, "moe.max_groups_per_token")
    elif moe.num_groups is not None:
        core.refuse_model("moe.num_groups", "groups of experts come with how many of them a token may go to")
    # One kernel for all experts of a rank, as they are priced.
    core.put("moe_grouped_gemm", True)


def _say_where_experts_are(core: Core, moe: Moe) -> None:
    layers = core.model.num_layers
    has = [int(moe.has_experts(layer)) for layer in range(layers)]
    if all(has):
        return
    front = min(moe.num_dense_layers, layers)
    if moe.layer_step == 1:
        core.put_model("moe_layer_freq", f"([0]*{front}+[1]*{layers - front})", "moe.num_dense_layers")
    else:
        core.put_model("moe_layer_freq", f"[{','.join(map(str, has))}]", "moe.layer_step")
