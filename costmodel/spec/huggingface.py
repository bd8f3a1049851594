"""A Hugging Face config.json as a ModelSpec, without transformers or torch.

A model_type is one small function in ``_FAMILIES`` that returns ModelSpec's fields. Absent keys mean what the
configuration class of that model_type in transformers makes of them; the classes' defaults for sizes that define
a model (layers, widths, heads) are not used: a file without them is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.model import ModelSpec
from costmodel.spec.validation import build

Fields = dict[str, Any]

# ModelSpec's cross-field checks name its own fields; a user of a config.json knows them by these keys.
_KEY_OF_FIELD = {
    "num_kv_heads": "num_key_value_heads",
    "moe.top_k": "num_experts_per_tok",
    "moe.num_dense_layers": "first_k_dense_replace",
    "moe.num_groups": "n_group",
    "moe.max_groups_per_token": "topk_group",
}


def known_model_types() -> tuple[str, ...]:
    return tuple(sorted(_FAMILIES))


def model_from_config(config: Mapping[str, Any], name: str) -> ModelSpec:
    """The model that a config.json describes; every problem is an InvalidInput that names the key."""
    if not isinstance(config, Mapping):
        raise InvalidInput("config.json", config, "an object of keys and values is expected")
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        known = ", ".join(known_model_types())
        raise InvalidInput("model_type", model_type, f"a config.json names its architecture here; known: {known}")
    if model_type not in _FAMILIES:
        hint = "a file of ModelSpec's own fields can describe other decoders"
        raise UnknownName("model_type", model_type, _FAMILIES, hint)
    fields = _FAMILIES[model_type](ConfigKeys(config))
    try:
        return build(ModelSpec, {"name": name, **fields}, where="")
    except InvalidInput as error:
        key = _KEY_OF_FIELD.get(error.field, error.field)
        raise InvalidInput(key, error.value, error.expected) from None


def _decoder(keys: ConfigKeys, *, head_dim: int | None = None, tied: bool = False) -> Fields:
    """What all families spell alike; ``head_dim`` and ``tied`` are their class defaults."""
    heads = keys.size("num_attention_heads")
    return {
        "num_layers": keys.size("num_hidden_layers"),
        "hidden_size": keys.size("hidden_size"),
        "num_heads": heads,
        "num_kv_heads": keys.size_or_none("num_key_value_heads") or heads,
        "head_dim": keys.size_or_none("head_dim", default=head_dim) or _even_head_dim(keys, heads),
        "ffn_hidden_size": keys.size("intermediate_size"),
        "vocab_size": keys.size("vocab_size"),
        "max_position_embeddings": keys.size_or_none("max_position_embeddings"),
        "tie_word_embeddings": keys.flag("tie_word_embeddings", default=tied),
    }


def _even_head_dim(keys: ConfigKeys, heads: int) -> int:
    hidden = keys.size("hidden_size")
    if hidden % heads:
        expected = f"without a head_dim it has to be a multiple of num_attention_heads ({heads})"
        raise InvalidInput("hidden_size", hidden, expected)
    return hidden // heads


def _attention_bias(keys: ConfigKeys, *, default: bool = False) -> Fields:
    bias = keys.flag("attention_bias", default=default)
    return {"qkv_bias": bias, "attention_out_bias": bias}


def _window(keys: ConfigKeys, window: int | None, sliding_layers: int) -> Fields:
    """The window and how many layers use it: as ``layer_types`` lists them, else ``sliding_layers``."""
    kinds = keys.items("layer_types")
    if kinds is not None:
        num_layers = keys.size("num_hidden_layers")
        if len(kinds) != num_layers:
            raise InvalidInput("layer_types", kinds, f"num_hidden_layers ({num_layers}) items are expected")
        for kind in kinds:
            if kind not in ("full_attention", "sliding_attention"):
                raise InvalidInput("layer_types", kind, "full_attention or sliding_attention is expected")
        sliding_layers = kinds.count("sliding_attention")
        if sliding_layers and window is None:
            raise InvalidInput("sliding_window", None, "layer_types has sliding layers: the window's size is required")
    if window is None or not sliding_layers:
        return {}
    return {"sliding_window": window, "num_sliding_layers": sliding_layers}


def _llama(keys: ConfigKeys) -> Fields:
    return _decoder(keys) | _attention_bias(keys) | {"mlp_bias": keys.flag("mlp_bias")}


def _mistral(keys: ConfigKeys) -> Fields:
    window = keys.size_or_none("sliding_window", default=4096)  # MistralConfig's default; null is none
    return _decoder(keys) | _window(keys, window, keys.size("num_hidden_layers"))


def _mixtral(keys: ConfigKeys) -> Fields:
    fields = _decoder(keys)
    window = keys.size_or_none("sliding_window")
    moe = {
        "num_experts": keys.size("num_local_experts", "num_experts"),
        "top_k": keys.size("num_experts_per_tok"),
        "expert_ffn_hidden_size": fields["ffn_hidden_size"],
    }
    return fields | _window(keys, window, fields["num_layers"]) | {"moe": moe}


def _qwen_window(keys: ConfigKeys) -> Fields:
    """Layers from ``max_window_layers`` on use the window, and only if ``use_sliding_window`` is set."""
    if not keys.flag("use_sliding_window"):
        return {}
    full = keys.count("max_window_layers", default=28)  # Qwen2Config's and Qwen3Config's default
    window = keys.size_or_none("sliding_window", default=4096)
    return _window(keys, window, max(0, keys.size("num_hidden_layers") - full))


def _qwen2(keys: ConfigKeys) -> Fields:
    return _decoder(keys) | _qwen_window(keys) | {"qkv_bias": True}


def _qwen3(keys: ConfigKeys) -> Fields:
    # 128 is Qwen3Config's default, whatever hidden_size is.
    return _decoder(keys, head_dim=128) | _attention_bias(keys) | _qwen_window(keys) | {"qk_norm": "head"}


def _qwen3_moe(keys: ConfigKeys) -> Fields:
    why = "MoE and dense layers that alternate can't be expressed"
    keys.require("decoder_sparse_step", 1, why)
    fields = _decoder(keys)
    dense = keys.items("mlp_only_layers") or []
    if dense != list(range(len(dense))):
        raise InvalidInput("mlp_only_layers", dense, f"[] or the first layers [0, 1, ...] are supported: {why}")
    if len(dense) > fields["num_layers"]:
        raise InvalidInput("mlp_only_layers", dense, f"at most num_hidden_layers={fields['num_layers']} are expected")
    moe = {
        "num_experts": keys.size("num_experts", "num_local_experts"),
        "top_k": keys.size("num_experts_per_tok"),
        "expert_ffn_hidden_size": keys.size("moe_intermediate_size"),
        "num_dense_layers": len(dense),
    }
    return fields | _attention_bias(keys) | _qwen_window(keys) | {"qk_norm": "head", "moe": moe}


def _deepseek(keys: ConfigKeys, *, first_dense: int, score_correction_bias: bool) -> Fields:
    fields = _decoder(keys)
    nope, rope = keys.size("qk_nope_head_dim"), keys.size("qk_rope_head_dim")
    mla = {
        # The class's default is V2's rank; files of V2-Lite that drop the key mean none.
        "q_lora_rank": keys.size_or_none("q_lora_rank"),
        "kv_lora_rank": keys.size("kv_lora_rank"),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": keys.size("v_head_dim"),
    }
    keys.require("moe_layer_freq", 1, "every layer after the dense ones has experts")
    expert = keys.size("moe_intermediate_size")
    moe = {
        "num_experts": keys.size("n_routed_experts", "num_local_experts"),
        "top_k": keys.size("num_experts_per_tok"),
        "expert_ffn_hidden_size": expert,
        "shared_expert_ffn_hidden_size": keys.count("n_shared_experts") * expert,
        "num_dense_layers": keys.count("first_k_dense_replace", default=first_dense),
        "score_correction_bias": score_correction_bias,
        "num_groups": keys.size_or_none("n_group"),
        "max_groups_per_token": keys.size_or_none("topk_group"),
    }
    # Keys and values are expanded for every head from the latent.
    heads = {"num_kv_heads": fields["num_heads"], "head_dim": nope + rope}
    mtp = {"num_mtp_layers": keys.count("num_nextn_predict_layers")}
    return fields | _attention_bias(keys) | heads | mtp | {"mla": mla, "moe": moe}


def _deepseek_v2(keys: ConfigKeys) -> Fields:
    return _deepseek(keys, first_dense=0, score_correction_bias=False)


def _deepseek_v3(keys: ConfigKeys) -> Fields:
    return _deepseek(keys, first_dense=3, score_correction_bias=True)


def _alternating(keys: ConfigKeys, window: int) -> Fields:
    """Every other layer uses the window, the first one included."""
    return _window(keys, keys.size_or_none("sliding_window", default=window), (keys.size("num_hidden_layers") + 1) // 2)


def _gpt_oss(keys: ConfigKeys) -> Fields:
    fields = _decoder(keys, head_dim=64)
    moe = {
        "num_experts": keys.size("num_local_experts", "num_experts"),
        "top_k": keys.size("num_experts_per_tok", "experts_per_token"),
        "expert_ffn_hidden_size": fields["ffn_hidden_size"],
        "router_bias": True,
    }
    extras = {"expert_bias": True, "attention_sinks": True, "moe": moe}
    return fields | _attention_bias(keys, default=True) | _alternating(keys, window=128) | extras


def _gemma2(keys: ConfigKeys) -> Fields:
    fields = _decoder(keys, head_dim=256, tied=True)
    return fields | _attention_bias(keys) | _alternating(keys, window=4096) | {"norms_per_layer": 4}


def _gpt2(keys: ConfigKeys) -> Fields:
    keys.require("add_cross_attention", False, "an encoder is not planned")
    hidden, heads = keys.size("n_embd", "hidden_size"), keys.size("n_head", "num_attention_heads")
    if hidden % heads:
        raise InvalidInput("n_embd", hidden, f"a multiple of n_head ({heads}) is expected")
    biases = ("qkv_bias", "attention_out_bias", "mlp_bias", "norm_bias")
    return {
        "num_layers": keys.size("n_layer", "num_hidden_layers"),
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": hidden // heads,
        "ffn_hidden_size": keys.size_or_none("n_inner") or 4 * hidden,
        "vocab_size": keys.size("vocab_size"),
        "max_position_embeddings": keys.size("n_positions", "max_position_embeddings", "n_ctx"),
        "gated_mlp": False,
        "tie_word_embeddings": keys.flag("tie_word_embeddings", default=True),
        "learned_position_embeddings": True,
    } | dict.fromkeys(biases, True)


_FAMILIES: dict[str, Callable[[ConfigKeys], Fields]] = {
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "gemma2": _gemma2,
    "gpt2": _gpt2,
    "gpt_oss": _gpt_oss,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
