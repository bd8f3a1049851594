"""Megatron-core's arguments: as ``--num-layers 80 ...`` in a script, or as keys of YAML or JSON.

What an absent argument means is Megatron-core's default (megatron/training/arguments.py and
megatron/core/transformer/transformer_config.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.spec.base import MOST_LAYERS
from costmodel.spec.class_defaults import framework_defaults
from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.families.common import Fields
from costmodel.spec.native.megatron_hybrid import hybrid_fields
from costmodel.spec.native.reading import layer_pattern, name_left_over, plain_keys, raise_problems
from costmodel.spec.native.tokenizers import vocabulary_of

_MARKS = {
    "add_bias_linear", "disable_bias_linear", "group_query_attention", "moe_router_topk", "multi_latent_attention",
    "num_query_groups", "swiglu", "tensor_model_parallel_size", "transformer_impl",
    "untie_embeddings_and_output_weights", "use_mcore_models",
}  # fmt: skip
# Arguments of forks whose layers ModelSpec has no words for.
_REFUSED = {
    "extends": "the file that it extends is not read: give the merged file, with all arguments",
    "includes": "the file that it includes is not read: give the merged file, with all arguments",
    "spec": "its layers come from a plug-in, which the arguments don't describe",
    "lfm_layer_types": "layers of short convolutions are not supported",
    "compress_ratios": "attention to compressed keys is not supported",
    "hc_mult": "hyper-connections are not supported",
    "kda_chunk_size": "Kimi delta attention is not supported",
    "heterogeneous_layers_config_path": "layers that differ one by one can't be planned",
    "engram_layers": "memory layers are not supported",
}
_CORE = "megatron.core"
_MOST_DIGITS = 20
_EXPERTS = ("num_experts", "num_moe_experts")


def recognises(data: Mapping[str, Any]) -> bool:
    args = plain_keys(_arguments(data))
    if any(str(key).startswith("--") for key in _arguments(data)):
        return True
    return "architectures" not in args and "num_hidden_layers" not in args and bool(_MARKS & set(args))


def fields_of(data: Mapping[str, Any]) -> Fields:
    arguments = {key: _typed(value) for key, value in plain_keys(_arguments(data)).items()}
    defaults = framework_defaults("megatron")
    keys = ConfigKeys(arguments, defaults, noted=False)
    for name, why in _REFUSED.items():
        value = keys.raw(name)
        if keys.has(name) and value is not False and not (name == "spec" and _CORE in str(value)):
            keys.problem(name, value, why)
    hidden, heads, layers = keys.size("hidden_size"), keys.size("num_attention_heads"), keys.size("num_layers")
    if layers > MOST_LAYERS:
        keys.problem("num_layers", layers, f"at most {MOST_LAYERS} are expected")
        raise_problems(keys)
    gated = True in [keys.flag(name) for name in ("swiglu", "quick_geglu", "gated_linear_unit")]
    grouped = keys.flag("group_query_attention")
    keys.has("num_query_groups")
    if not grouped and keys.raw("num_query_groups") not in (None, defaults["num_query_groups"], heads):
        groups = keys.raw("num_query_groups")
        keys.note(f"num_query_groups {groups} counts with group_query_attention only: every head has its own KV head")
    # Megatron-core's default keeps a gated MLP as large as a plain one of four times the width.
    default_ffn = hidden * 4 * 2 // 3 // 64 * 64 if gated else 4 * hidden
    ffn = keys.size_or_none("ffn_hidden_size") or max(1, default_ffn)
    fields: Fields = {
        "num_layers": layers,
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": keys.size("num_query_groups") if grouped else heads,
        "head_dim": keys.size_or_none("kv_channels") or _even_head_dim(keys, hidden, heads),
        "ffn_hidden_size": ffn,
        "vocab_size": vocabulary_of(keys),
        "max_position_embeddings": _positions(keys),
        "gated_mlp": gated,
        "tie_word_embeddings": not keys.flag("untie_embeddings_and_output_weights"),
        "num_mtp_layers": keys.count("mtp_num_layers"),
        "attention_output_gate": keys.flag("attention_output_gate"),
        "attention_sinks": keys.text("softmax_type") == "learnable",
    }
    keys.check(
        ("num_query_groups",),
        ("num_attention_heads",),
        lambda groups, count: count % groups == 0 or fields["num_kv_heads"] != groups,
        "a divisor of the number of attention heads ({}) is expected",
    )
    fields |= _biases_and_norms(keys) | _position_embeddings(keys)
    fields |= _latent(keys, heads) if keys.flag("multi_latent_attention") else {}
    fields |= {"moe": _experts(keys, layers, ffn)} if any(keys.has(name) for name in _EXPERTS) else {}
    fields |= hybrid_fields(keys, layers, hidden)
    raise_problems(keys)
    named = {key: value for key, value in arguments.items() if value != defaults.get(key)}
    left = name_left_over(named, (*keys.read, *_turned_off(data, arguments)), strict=False)
    return fields | {"notes": (*left, *keys.notes)}


def _turned_off(data: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Arguments of experts and of latent attention, where a merged file says that there are none."""
    given = {str(key).lstrip("-").replace("-", "_") for key in _arguments(data)}
    has_experts = any(arguments.get(name) for name in _EXPERTS)
    off = ["moe_"] if given.intersection(_EXPERTS) and not has_experts else []
    if arguments.get("multi_latent_attention") is False:
        off += ["kv_lora_rank", "q_lora_rank", "qk_", "v_head_dim"]
    return [key for key in arguments if key.startswith(tuple(off))]


def _arguments(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The mapping that holds the arguments: the data itself, or the block of a launcher's file."""
    for value in data.values():
        if isinstance(value, Mapping) and any(str(key).startswith("--") for key in value):
            return value
    return data


def _typed(value: Any) -> Any:
    """An argument's text as the number or the truth value it is."""
    if not isinstance(value, str):
        return value
    text = value.strip().strip("'\"")
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), value)


def _even_head_dim(keys: ConfigKeys, hidden: int, heads: int) -> int:
    expected = "without kv_channels it has to be a multiple of num_attention_heads ({})"
    keys.check(("hidden_size",), ("num_attention_heads",), lambda width, count: width % count == 0, expected)
    return max(1, hidden // heads)


def _positions(keys: ConfigKeys) -> int | None:
    """A script's variable is no problem here: it only says for how long a sequence the model is made."""
    value = keys.raw("max_position_embeddings")
    return keys.size("max_position_embeddings") if isinstance(value, int) else None


def _position_embeddings(keys: ConfigKeys) -> Fields:
    kind = keys.text("position_embedding_type") or "learned_absolute"
    rotary = keys.flag("use_rotary_position_embeddings") or not keys.flag("add_position_embedding", default=True)
    learned = kind == "learned_absolute" and not rotary and not keys.flag("no_position_embedding")
    if learned and _positions(keys) is None:
        expected = "the default position_embedding_type learns one embedding a position: their number is required"
        keys.problem("max_position_embeddings", keys.raw("max_position_embeddings"), expected)
    return {"learned_position_embeddings": learned}


def _biases_and_norms(keys: ConfigKeys) -> Fields:
    bias = keys.flag("add_bias_linear", default=True) and not keys.flag("disable_bias_linear")
    after = keys.flag("post_self_attn_layernorm") + keys.flag("post_mlp_layernorm")
    latent = keys.flag("multi_latent_attention")
    return {
        "qkv_bias": bias or keys.flag("add_qkv_bias"),
        "attention_out_bias": bias,
        "mlp_bias": bias,
        "expert_bias": bias,
        "norm_bias": (keys.text("normalization") or "LayerNorm") == "LayerNorm",
        "norms_per_layer": 2 + after,
        "qk_norm": "head" if keys.flag("qk_layernorm") and not latent else "none",
    }


def _latent(keys: ConfigKeys, heads: int) -> Fields:
    nope, rope = keys.size("qk_head_dim"), keys.size("qk_pos_emb_head_dim")
    mla = {
        "q_lora_rank": keys.size_or_none("q_lora_rank"),
        "kv_lora_rank": keys.size("kv_lora_rank"),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": keys.size("v_head_dim"),
    }
    return {"mla": mla, "num_kv_heads": heads, "head_dim": nope + rope}


def _experts(keys: ConfigKeys, layers: int, ffn: int) -> Fields:
    shared = keys.count("moe_shared_expert_intermediate_size")
    at_most = "at most the number of experts ({}) is expected"
    keys.check(("moe_router_topk",), _EXPERTS, lambda chosen, experts: chosen <= experts, at_most)
    return {
        "num_experts": keys.size(*_EXPERTS),
        "latent_size": keys.size_or_none("moe_latent_size"),
        "top_k": keys.size("moe_router_topk"),
        "expert_ffn_hidden_size": keys.size_or_none("moe_ffn_hidden_size") or ffn,
        "shared_expert_ffn_hidden_size": shared,
        "shared_expert_gate": keys.flag("moe_shared_expert_gate") and shared > 0,
        "score_correction_bias": keys.flag("moe_router_enable_expert_bias"),
        "num_groups": keys.size_or_none("moe_router_num_groups"),
        "max_groups_per_token": keys.size_or_none("moe_router_group_topk"),
    } | _expert_layers(keys, layers)


def _expert_layers(keys: ConfigKeys, layers: int) -> Fields:
    """``moe_layer_freq``: an expression of a list with 1 for each layer with experts, or every how many layers."""
    value = keys.raw("moe_layer_freq")
    keys.has("moe_layer_freq")
    if value is None or value == 1:
        return {}
    if isinstance(value, int) and value > 1 and layers % value == 0:
        keys.note(
            f"moe_layer_freq {value} puts experts into the first layer of each group of {value}: planned as the last "
            "one, which moves them by less than a group"
        )
        return {"layer_step": value}
    pattern = layer_pattern(value)
    if pattern is None:
        expected = "1 or a list such as ([0]*3+[1]*58) is expected"
        keys.problem(
            "moe_layer_freq", value, f"{expected}{'; a variable has to be put in' if '$' in str(value) else ''}"
        )
        return {}
    if len(pattern) != layers:
        keys.problem("moe_layer_freq", value, f"num_layers ({layers}) items are expected, not {len(pattern)}")
        return {}
    first = pattern.index(1) if 1 in pattern else layers
    steps = [layer for layer, has in enumerate(pattern) if has]
    step = steps[1] - steps[0] if len(steps) > 1 else 1
    dense = max(0, first - step + 1)
    rebuilt = [int(layer >= dense and (layer - dense + 1) % step == 0) for layer in range(layers)]
    if rebuilt != pattern:
        expected = "dense layers in front, then experts in every layer or in the last of each group are supported"
        keys.problem("moe_layer_freq", value, expected)
    return {"num_dense_layers": dense, "layer_step": step}
