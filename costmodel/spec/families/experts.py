"""Decoders with experts and plain attention."""

from __future__ import annotations

from collections.abc import Callable

from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.families.common import (
    EXPERTS,
    LAYERS,
    TOP_K,
    Fields,
    attention_bias,
    decoder,
    layer_kinds,
    window,
)
from costmodel.spec.families.dense import qwen_window


def _as_wide_as_the_mlp(keys: ConfigKeys, fields: Fields, **more: object) -> Fields:
    """Experts of ``intermediate_size``."""
    other = keys.count("moe_intermediate_size")
    if other and other != fields["ffn_hidden_size"]:
        keys.note(f"moe_intermediate_size {other} is not used: experts of this model_type have intermediate_size")
    moe = {
        "num_experts": keys.size("num_local_experts", "num_experts"),
        "top_k": keys.size(*TOP_K),
        "expert_ffn_hidden_size": fields["ffn_hidden_size"],
    }
    return fields | {"moe": moe | more}


def _mixtral(keys: ConfigKeys) -> Fields:
    sliding = window(keys, keys.size_or_none("sliding_window"), keys.size(*LAYERS))
    return _as_wide_as_the_mlp(keys, decoder(keys)) | sliding


def sparse_layers(keys: ConfigKeys) -> Fields:
    """Which of Qwen's layers have experts: every ``decoder_sparse_step``-th, but those of ``mlp_only_layers``."""
    step = keys.size("decoder_sparse_step", default=1)
    dense = keys.items("mlp_only_layers") or []
    layers = keys.size(*LAYERS)
    if dense != list(range(len(dense))):
        why = "MoE and dense layers that alternate can be expressed by decoder_sparse_step only"
        keys.problem("mlp_only_layers", dense, f"[] or the first layers [0, 1, ...] are supported: {why}")
    elif len(dense) > layers:
        keys.problem("mlp_only_layers", dense, f"at most num_hidden_layers={layers} are expected")
    elif len(dense) % step:
        keys.problem("mlp_only_layers", dense, f"with decoder_sparse_step {step}, whole groups of {step} are supported")
    return {"num_dense_layers": len(dense), "layer_step": step}


def qwen_experts(keys: ConfigKeys) -> Fields:
    shared = keys.count("shared_expert_intermediate_size")
    return {
        "num_experts": keys.size(*EXPERTS),
        "top_k": keys.size(*TOP_K),
        "expert_ffn_hidden_size": keys.size("moe_intermediate_size"),
        "shared_expert_ffn_hidden_size": shared,
        "shared_expert_gate": shared > 0,
    } | sparse_layers(keys)


def _qwen3_moe(keys: ConfigKeys) -> Fields:
    fields = decoder(keys) | attention_bias(keys) | qwen_window(keys)
    moe = qwen_experts(keys) | {"shared_expert_ffn_hidden_size": 0, "shared_expert_gate": False}
    return fields | {"qk_norm": "head", "moe": moe}


def _qwen2_moe(keys: ConfigKeys) -> Fields:
    bias = keys.flag("qkv_bias", default=True)
    return decoder(keys) | qwen_window(keys) | {"qkv_bias": bias, "moe": qwen_experts(keys)}


def _gpt_oss(keys: ConfigKeys) -> Fields:
    size = keys.size_or_none("sliding_window", default=128)
    sliding = window(keys, size, (keys.size(*LAYERS) + 1) // 2)
    fields = decoder(keys, head_dim=64) | attention_bias(keys, default=True) | sliding
    return _as_wide_as_the_mlp(keys, fields, router_bias=True) | {"expert_bias": True, "attention_sinks": True}


def _glm4_moe(keys: ConfigKeys) -> Fields:
    expert = keys.size("moe_intermediate_size")
    moe = {
        "num_experts": keys.size("n_routed_experts", "num_local_experts"),
        "top_k": keys.size(*TOP_K),
        "expert_ffn_hidden_size": expert,
        "shared_expert_ffn_hidden_size": keys.count("n_shared_experts", default=1) * expert,
        "num_dense_layers": keys.count("first_k_dense_replace", default=1),
        "score_correction_bias": True,
        "num_groups": keys.size_or_none("n_group"),
        "max_groups_per_token": keys.size_or_none("topk_group"),
    }
    norm = "head" if keys.flag("use_qk_norm") else "none"
    extras = {"qk_norm": norm, "moe": moe, "num_mtp_layers": mtp_layers(keys)}
    return decoder(keys) | attention_bias(keys, out=False) | extras


def mtp_layers(keys: ConfigKeys) -> int:
    """``num_nextn_predict_layers``; a file without the key may have lost it, as checkpoints of these families have."""
    if not keys.has("num_nextn_predict_layers"):
        keys.note("num_nextn_predict_layers is absent: no multi-token prediction is planned, check the full config")
    return keys.count("num_nextn_predict_layers")


def _dbrx(keys: ConfigKeys) -> Fields:
    """Sizes of attention and experts are in blocks of their own; norms have no biases."""
    attention, feed_forward = keys.part("attn_config"), keys.part("ffn_config")
    heads, hidden = keys.size("n_heads"), keys.size("d_model")
    keys.check(
        ("d_model",), ("n_heads",), lambda width, count: width % count == 0, "a multiple of n_heads ({}) is expected"
    )
    width = feed_forward.size("ffn_hidden_size")
    moe = {
        "num_experts": feed_forward.size("moe_num_experts"),
        "top_k": feed_forward.size("moe_top_k"),
        "expert_ffn_hidden_size": width,
    }
    return {
        "num_layers": keys.size("n_layers"),
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": attention.size("kv_n_heads"),
        "head_dim": max(1, hidden // heads),
        "ffn_hidden_size": width,
        "vocab_size": keys.size("vocab_size"),
        "max_position_embeddings": keys.size("max_seq_len", default=2048),
        "tie_word_embeddings": keys.flag("tie_word_embeddings"),
        "moe": moe,
    }


def _grok(keys: ConfigKeys) -> Fields:
    """Norms before and after attention and experts."""
    return _as_wide_as_the_mlp(keys, decoder(keys)) | {"norms_per_layer": 4}


def _llama4(keys: ConfigKeys) -> Fields:
    """Dense layers between those with experts have ``intermediate_size_mlp``; norms of Q and K have no weights."""
    expert = keys.size("intermediate_size")
    step = keys.size("interleave_moe_layer_step", default=1)
    layers = keys.size(*LAYERS)
    listed = keys.items("moe_layers")
    if listed is not None and (len(listed) != layers // step or listed != list(range(step - 1, layers, step))):
        keys.problem("moe_layers", listed, f"every {step}th layer is expected, as interleave_moe_layer_step says")
    layer_kinds(keys, "full_attention", "chunked_attention")
    keys.has("use_qk_norm")
    if keys.size_or_none("attention_chunk_size", default=8192):
        keys.note("attention in chunks (attention_chunk_size) is priced as attention to the whole sequence")
    moe = {
        "num_experts": keys.size("num_local_experts", "num_experts"),
        "top_k": keys.size(*TOP_K),
        "expert_ffn_hidden_size": expert,
        "shared_expert_ffn_hidden_size": expert,
        "layer_step": step,
    }
    fields = decoder(keys, head_dim=128) | attention_bias(keys)
    return fields | {"ffn_hidden_size": keys.size("intermediate_size_mlp", default=16384), "moe": moe}


def _minimax_m2(keys: ConfigKeys) -> Fields:
    norm = "full" if keys.flag("use_qk_norm", default=True) else "none"
    for name in ("mtp_transformer_layers", "num_mtp_modules", "qk_norm_type", "use_routing_bias"):
        keys.has(name)
    if keys.flag("use_mtp"):
        keys.note("use_mtp: the layout of its prediction modules is not published, so none is planned")
    return _as_wide_as_the_mlp(keys, decoder(keys, head_dim=128), score_correction_bias=True) | {"qk_norm": norm}


def _olmoe(keys: ConfigKeys) -> Fields:
    return _as_wide_as_the_mlp(keys, decoder(keys) | attention_bias(keys)) | {"qk_norm": "full"}


def _granite_moe(keys: ConfigKeys) -> Fields:
    return _as_wide_as_the_mlp(keys, decoder(keys) | attention_bias(keys))


def _phimoe(keys: ConfigKeys) -> Fields:
    sliding = window(keys, keys.size_or_none("sliding_window"), keys.size(*LAYERS))
    fields = decoder(keys) | attention_bias(keys) | sliding | {"norm_bias": True}
    return _as_wide_as_the_mlp(keys, fields) | {"head_bias": keys.flag("lm_head_bias")}


def _dots1(keys: ConfigKeys) -> Fields:
    expert = keys.size("moe_intermediate_size")
    moe = {
        "num_experts": keys.size("n_routed_experts"),
        "top_k": keys.size(*TOP_K),
        "expert_ffn_hidden_size": expert,
        "shared_expert_ffn_hidden_size": keys.count("n_shared_experts") * expert,
        "num_dense_layers": keys.count("first_k_dense_replace"),
        "score_correction_bias": True,
        "num_groups": keys.size_or_none("n_group"),
        "max_groups_per_token": keys.size_or_none("topk_group"),
    }
    return decoder(keys) | attention_bias(keys) | {"qk_norm": "head", "moe": moe}


def _ernie_moe(keys: ConfigKeys) -> Fields:
    """Experts from ``moe_layer_start_index`` on, in every layer up to the last."""
    keys.require("moe_layer_interval", 1, "every layer from the first one with experts has them")
    layers, last = keys.size(*LAYERS), keys.raw("moe_layer_end_index")
    if keys.has("moe_layer_end_index") and last not in (-1, layers - 1):
        keys.problem("moe_layer_end_index", last, f"-1 or the last layer ({layers - 1}) is supported")
    expert = keys.size("moe_intermediate_size")
    bias = keys.flag("use_bias")
    moe = {
        "num_experts": keys.size("moe_num_experts", "num_experts"),
        "top_k": keys.size("moe_k", "num_experts_per_tok", default=6),
        "expert_ffn_hidden_size": expert,
        "shared_expert_ffn_hidden_size": keys.count("moe_num_shared_experts", default=2) * expert,
        "num_dense_layers": keys.count("moe_layer_start_index", default=1),
        "score_correction_bias": True,
    }
    biases = dict.fromkeys(("qkv_bias", "attention_out_bias", "mlp_bias", "head_bias"), bias)
    return decoder(keys, tied=True) | biases | {"moe": moe}


FAMILIES: dict[str, Callable[[ConfigKeys], Fields]] = {
    "dbrx": _dbrx,
    "dots1": _dots1,
    "ernie4_5_moe": _ernie_moe,
    "glm4_moe": _glm4_moe,
    "gpt_oss": _gpt_oss,
    "granitemoe": _granite_moe,
    "grok-1": _grok,
    "llama4_text": _llama4,
    "minimax_m2": _minimax_m2,
    "mixtral": _mixtral,
    "olmoe": _olmoe,
    "phimoe": _phimoe,
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
    "qwen3_vl_moe_text": _qwen3_moe,
}
