"""Decoders with one dense MLP a layer, most of them variations of Llama."""

from __future__ import annotations

from collections.abc import Callable

from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.families.common import (
    ALL_BIASES,
    HEADS,
    LAYERS,
    UNGATED,
    Fields,
    attention_bias,
    decoder,
    every_nth_full,
    layer_kinds,
    window,
)


def llama(keys: ConfigKeys) -> Fields:
    return decoder(keys) | attention_bias(keys) | {"mlp_bias": keys.flag("mlp_bias")}


def _tied_llama(keys: ConfigKeys) -> Fields:
    return llama(keys) | {"tie_word_embeddings": keys.flag("tie_word_embeddings", default=True)}


def _mistral(keys: ConfigKeys) -> Fields:
    # 4096 is MistralConfig's default; null is none.
    return decoder(keys) | window(keys, keys.size_or_none("sliding_window", default=4096), keys.size(*LAYERS))


def _ministral(keys: ConfigKeys) -> Fields:
    # 128 is Ministral3Config's default, whatever hidden_size is.
    fields = decoder(keys, head_dim=128)
    return fields | window(keys, keys.size_or_none("sliding_window"), keys.size(*LAYERS))


def qwen_window(keys: ConfigKeys) -> Fields:
    """Layers from ``max_window_layers`` on use the window, and only if ``use_sliding_window`` is set."""
    if not keys.flag("use_sliding_window"):
        keys.has("max_window_layers")
        keys.has("sliding_window")
        if "sliding_attention" in (layer_kinds(keys, "full_attention", "sliding_attention") or ()):
            keys.note("layer_types has sliding layers, but use_sliding_window is off: all see the whole sequence")
        return {}
    full = keys.count("max_window_layers", default=28)  # Qwen2Config's and Qwen3Config's default
    size = keys.size_or_none("sliding_window", default=4096)
    return window(keys, size, max(0, keys.size(*LAYERS) - full))


def _qwen2(keys: ConfigKeys) -> Fields:
    return decoder(keys) | qwen_window(keys) | {"qkv_bias": True}


def _qwen3(keys: ConfigKeys) -> Fields:
    # 128 is Qwen3Config's default, whatever hidden_size is.
    return decoder(keys, head_dim=128) | attention_bias(keys) | qwen_window(keys) | {"qk_norm": "head"}


def _gemma(keys: ConfigKeys) -> Fields:
    return decoder(keys, head_dim=256, tied=True) | attention_bias(keys)


def _gemma2(keys: ConfigKeys) -> Fields:
    # Every other layer uses the window, the first one included.
    size = keys.size_or_none("sliding_window", "sliding_window_size", default=4096)
    return _gemma(keys) | window(keys, size, (keys.size(*LAYERS) + 1) // 2) | {"norms_per_layer": 4}


def _gemma3(keys: ConfigKeys) -> Fields:
    size = keys.size_or_none("sliding_window", default=4096)
    return _gemma(keys) | every_nth_full(keys, size, pattern=6) | {"norms_per_layer": 4, "qk_norm": "head"}


def _phi(keys: ConfigKeys) -> Fields:
    """Attention and MLP read one norm; every product has a bias, the head's too."""
    keys.require("qk_layernorm", False, "its norms have biases")
    return decoder(keys) | ALL_BIASES | UNGATED | {"head_bias": True, "norms_per_layer": 1}


def _phi3(keys: ConfigKeys) -> Fields:
    return decoder(keys) | window(keys, keys.size_or_none("sliding_window"), keys.size(*LAYERS))


def _olmo(keys: ConfigKeys) -> Fields:
    return decoder(keys) | attention_bias(keys) | {"norm_weight": False}


def _olmo2(keys: ConfigKeys) -> Fields:
    return decoder(keys) | attention_bias(keys) | {"qk_norm": "full"}


def _olmo3(keys: ConfigKeys) -> Fields:
    return _olmo2(keys) | every_nth_full(keys, keys.size_or_none("sliding_window", default=4096), pattern=4)


def _cohere(keys: ConfigKeys) -> Fields:
    """Attention and MLP read one norm that has no bias."""
    fields = decoder(keys, tied=True) | attention_bias(keys) | {"norms_per_layer": 1}
    return fields | {"qk_norm": "full" if keys.flag("use_qk_norm") else "none"}


def _cohere2(keys: ConfigKeys) -> Fields:
    return _cohere(keys) | every_nth_full(keys, keys.size_or_none("sliding_window", default=4096), pattern=4)


def _starcoder2(keys: ConfigKeys) -> Fields:
    bias = keys.flag("use_bias", default=True)
    biases = {"qkv_bias": bias, "attention_out_bias": bias, "mlp_bias": bias, "norm_bias": True}
    sliding = window(keys, keys.size_or_none("sliding_window"), keys.size(*LAYERS))
    return decoder(keys, tied=True) | UNGATED | biases | sliding


def _nemotron(keys: ConfigKeys) -> Fields:
    """Squared ReLU without a gate, layer norms with biases."""
    return llama(keys) | UNGATED | {"norm_bias": True}


def _stablelm(keys: ConfigKeys) -> Fields:
    keys.require("qk_layernorm", False, "every head has a norm of its own there")
    norms = 1 if keys.flag("use_parallel_residual") else 2
    return decoder(keys) | {"qkv_bias": keys.flag("use_qkv_bias"), "norm_bias": True, "norms_per_layer": norms}


def _glm(keys: ConfigKeys) -> Fields:
    return decoder(keys, head_dim=128) | attention_bias(keys, default=True, out=False)


def _glm4(keys: ConfigKeys) -> Fields:
    return _glm(keys) | {"norms_per_layer": 4}


def _seed_oss(keys: ConfigKeys) -> Fields:
    biases = {"qkv_bias": keys.flag("attention_bias", default=True)}
    biases |= {"attention_out_bias": keys.flag("attention_out_bias"), "mlp_bias": keys.flag("mlp_bias")}
    return decoder(keys, head_dim=128) | biases


def _ernie(keys: ConfigKeys) -> Fields:
    biases = dict.fromkeys(("qkv_bias", "attention_out_bias", "mlp_bias"), keys.flag("use_bias"))
    return decoder(keys, head_dim=128, tied=True) | biases


def _exaone4(keys: ConfigKeys) -> Fields:
    kinds = keys.items("layer_types")
    keys.has("sliding_window_pattern")  # layer_types says which
    size = keys.size_or_none("sliding_window")
    sliding = window(keys, size, 0) if kinds is not None else {}
    if size is not None and kinds is None:
        keys.problem("layer_types", None, "a file with a sliding_window says here which layers use it")
    return decoder(keys) | sliding | {"qk_norm": "head"}


def _apertus(keys: ConfigKeys) -> Fields:
    return decoder(keys) | attention_bias(keys) | UNGATED | {"qk_norm": "head"}


def _arcee(keys: ConfigKeys) -> Fields:
    return llama(keys) | UNGATED


def _hunyuan(keys: ConfigKeys) -> Fields:
    return decoder(keys) | attention_bias(keys) | {"qk_norm": "head"}


def _mllama(keys: ConfigKeys) -> Fields:
    """Llama whose cross-attention layers look at an image; they have the parameters of the others."""
    crossing = keys.items("cross_attention_layers") or []
    if crossing:
        keys.note(
            f"{len(crossing)} of {keys.size(*LAYERS)} layers attend to an image (cross_attention_layers): they are "
            "planned like the others, and the image's tokens aren't costed"
        )
    return decoder(keys)


def _qwen(keys: ConfigKeys) -> Fields:
    """The first Qwen: ``intermediate_size`` is of both halves of its gated MLP."""
    keys.require("no_bias", True, "biases are on queries, keys and values only")
    fields = decoder(keys, head_dim=keys.size_or_none("kv_channels"))
    return fields | {"ffn_hidden_size": max(1, fields["ffn_hidden_size"] // 2), "qkv_bias": True}


def _chatglm(keys: ConfigKeys) -> Fields:
    heads = keys.size(*HEADS)
    groups = keys.size("multi_query_group_num") if keys.flag("multi_query_attention") else heads
    bias = keys.flag("add_bias_linear")
    biases = {"qkv_bias": bias or keys.flag("add_qkv_bias"), "attention_out_bias": bias, "mlp_bias": bias}
    fields = decoder(keys, head_dim=keys.size_or_none("kv_channels")) | biases
    return fields | {"num_kv_heads": groups, "norm_bias": not keys.flag("rmsnorm", default=True)}


FAMILIES: dict[str, Callable[[ConfigKeys], Fields]] = {
    "apertus": _apertus,
    "arcee": _arcee,
    "chatglm": _chatglm,
    "cohere": _cohere,
    "cohere2": _cohere2,
    "ernie4_5": _ernie,
    "exaone4": _exaone4,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "glm": _glm,
    "glm4": _glm4,
    "granite": llama,
    "helium": llama,
    "hunyuan_v1_dense": _hunyuan,
    "llama": llama,
    "ministral": _mistral,
    "ministral3": _ministral,
    "mistral": _mistral,
    "mllama_text_model": _mllama,
    "nemotron": _nemotron,
    "olmo": _olmo,
    "olmo2": _olmo2,
    "olmo3": _olmo3,
    "phi": _phi,
    "phi3": _phi3,
    "qwen": _qwen,
    "qwen2": _qwen2,
    "qwen2_5_vl_text": _qwen2,
    "qwen2_vl_text": _qwen2,
    "qwen3": _qwen3,
    "qwen3_vl_text": _qwen3,
    "seed_oss": _seed_oss,
    "smollm3": _tied_llama,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
}
