"""GPT-NeoX's YAML (EleutherAI/gpt-neox, megatron/neox_arguments and megatron/model/transformer.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.spec.class_defaults import framework_defaults
from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.families.common import Fields
from costmodel.spec.native.reading import name_left_over, plain_keys, raise_problems

_MARKS = {"pipe_parallel_size", "gpt_j_residual", "no_weight_tying", "pos_emb", "attention_config", "gpt_j_tied"}
_GATED = ("swiglu", "geglu", "reglu", "bilinear")
_ATTENTION = ("global", "flash", "local", "sparse_fixed", "sparse_variable", "bigbird", "bslongformer")


def recognises(data: Mapping[str, Any]) -> bool:
    keys = set(plain_keys(data))
    return "num_layers" in keys and "hidden_size" in keys and bool(_MARKS & keys) and "architectures" not in keys


def fields_of(data: Mapping[str, Any]) -> Fields:
    keys = ConfigKeys(plain_keys(data), framework_defaults("gpt_neox"), noted=False)
    layers, hidden, heads = keys.size("num_layers"), keys.size("hidden_size"), keys.size("num_attention_heads")
    _check_layers(keys)
    keys.check(
        ("hidden_size",),
        ("num_attention_heads",),
        lambda width, count: width % count == 0,
        "a multiple of num_attention_heads ({}) is expected",
    )
    activation = keys.text("activation") or "gelu"
    gated = activation in _GATED or keys.text("mlp_type") == "llama"
    norm = keys.text("norm") or "layernorm"
    biased_norm = norm == "layernorm" and keys.flag("use_bias_in_norms", default=True)
    bias = keys.flag("use_bias_in_attn_linear", default=True)
    position = keys.text("pos_emb") or "learned"
    window = keys.size_or_none("sliding_window_width")
    fields: Fields = {
        "num_layers": layers,
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": keys.size_or_none("num_kv_heads") or heads,
        "head_dim": max(1, hidden // heads),
        "ffn_hidden_size": _ffn_width(keys, hidden, activation),
        "vocab_size": _padded_vocabulary(keys),
        "max_position_embeddings": keys.size("max_position_embeddings"),
        "gated_mlp": gated,
        "tie_word_embeddings": not keys.flag("no_weight_tying"),
        "learned_position_embeddings": position == "learned",
        "qkv_bias": bias,
        "attention_out_bias": bias,
        "mlp_bias": keys.flag("use_bias_in_mlp", default=True) and keys.text("mlp_type") != "llama",
        "norm_bias": biased_norm,
        "norms_per_layer": 1 if keys.flag("gpt_j_tied") and keys.flag("gpt_j_residual") else 2,
        "qk_norm": "head" if keys.flag("use_qk_layernorm") else "none",
    }
    if window is not None:
        fields |= {"sliding_window": window, "num_sliding_layers": layers}
    if keys.count("moe_num_experts", default=1) > 1:
        fields |= {"moe": _experts(keys, fields["ffn_hidden_size"]), "expert_bias": False}
    raise_problems(keys)
    return fields | {"notes": (*name_left_over(plain_keys(data), keys.read, strict=False), *keys.notes)}


def _check_layers(keys: ConfigKeys) -> None:
    """``[[["flash"], 32]]``: kinds of layers with how often they repeat."""
    for entry in keys.items("attention_config") or []:
        kinds = entry[0] if isinstance(entry, list) and entry and isinstance(entry[0], list) else [entry]
        unknown = [kind for kind in kinds if kind not in _ATTENTION]
        if unknown:
            keys.problem("attention_config", unknown[0], "layers of attention are supported, not of other mixers")


def _ffn_width(keys: ConfigKeys, hidden: int, activation: str) -> int:
    """A gated MLP's width is a third of the given one, so that it is as large as a plain one; then rounded up."""
    given = keys.size_or_none("intermediate_size", "ffn_hidden_size")
    multiple = keys.size("mlp_multiple_of")
    if keys.text("mlp_type") == "llama":
        width = given or 2 * 4 * hidden // 3
    else:
        width = given or 4 * hidden
        width = int(width * 2 / 3) // 2 if activation in _GATED else width
    return -(-max(1, width) // multiple) * multiple


def _padded_vocabulary(keys: ConfigKeys) -> int:
    """GPT-NeoX trains the padded vocabulary, so a published checkpoint has it too."""
    if keys.has("padded_vocab_size"):
        return keys.size("padded_vocab_size")
    size = keys.size("vocab_size")
    unit = keys.size("make_vocab_size_divisible_by") * keys.size("model_parallel_size")
    if not keys.has("vocab_size"):
        named = keys.text("tokenizer_type")
        why = f"{named}'s is not in the file" if named else "no tokenizer is in the file"
        keys.note(f"vocab_size: {why}, the default tokenizer's {size} is padded to a multiple of {unit}")
    return -(-size // unit) * unit


def _experts(keys: ConfigKeys, width: int) -> Fields:
    return {
        "num_experts": keys.size("moe_num_experts"),
        "top_k": keys.size("moe_top_k"),
        "expert_ffn_hidden_size": width,
    }
