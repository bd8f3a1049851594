"""torchtitan's flavours, by the arguments that their builders take; a params.json (Meta, Mistral) has such names too.

Which architecture it is, is told by the arguments: latent ranks are DeepSeek's, keys of a delta net Qwen 3.5's, a
``moe`` block Mixtral's, a ``head_dim`` Qwen 3's in a flavour of torchtitan's and Mistral's elsewhere, and
``multiple_of`` or nothing more Llama's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.class_defaults import framework_defaults
from costmodel.spec.families.common import Fields
from costmodel.spec.key_words import holds_something, is_harmless
from costmodel.spec.native.reading import as_family, name_left_over, renamed

_NAMES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "hidden_dim": "intermediate_size",
    "dense_hidden_dim": "intermediate_size",
    "moe_hidden_dim": "moe_intermediate_size",
    "vocab_size": "vocab_size",
    "max_context_length": "max_position_embeddings",
    "max_seq_len": "max_position_embeddings",
    "max_position_embeddings": "max_position_embeddings",
    "top_k": "num_experts_per_tok",
    "router_top_k": "num_experts_per_tok",
    "n_dense_layers": "first_k_dense_replace",
    "num_shared_experts": "n_shared_experts",
    "kv_lora_rank": "kv_lora_rank",
    "qk_nope_head_dim": "qk_nope_head_dim",
    "rope_dim": "qk_rope_head_dim",
    "qk_rope_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
    "router_num_expert_groups": "n_group",
    "router_num_limited_groups": "topk_group",
    "shared_expert_hidden_dim": "shared_expert_intermediate_size",
    "n_value_heads": "linear_num_value_heads",
    "value_head_dim": "linear_value_head_dim",
    "n_key_heads": "linear_num_key_heads",
    "key_head_dim": "linear_key_head_dim",
    "tie_word_embeddings": "tie_word_embeddings",
    "enable_weight_tying": "tie_word_embeddings",
}

# What the readers below look at, and what changes no parameter in these files.
_OTHERS = {
    "deepseek_v3": ("num_experts", "q_lora_rank"),
    "llama": ("ffn_dim_multiplier", "multiple_of"),
    "mistral": ("qk_norm", "sliding_window"),
    "mixtral": ("moe", "sliding_window"),
    "qwen3": ("qk_norm",),
    "qwen3_moe": ("num_experts", "qk_norm"),
    "qwen3_5_moe_text": ("num_experts",),
    "qwen3_5_text": (),
}
_NO_PARAMETERS = ("max_batch_size", "model_type", "norm_eps", "rope_theta", "use_scaled_rope", "v_tekken", "name")
_OF_VISION = (
    "ffn_dim", "in_channels", "num_heads", "num_layers", "num_position_embeddings", "out_hidden_size", "patch_size",
    "spatial_merge_size", "temporal_patch_size",
)  # fmt: skip
# These are arguments of torchtitan's Qwen 3, which has norms of queries and keys; Mistral's files have none of them.
_OF_QWEN = ("max_context_length", "enable_weight_tying", "moe_hidden_dim", "qk_norm")
_OF_MOE = {"num_experts": "num_local_experts", "num_experts_per_tok": "num_experts_per_tok"}


def recognises(data: Mapping[str, Any]) -> bool:
    return "dim" in data and "n_layers" in data


def fields_of(data: Mapping[str, Any]) -> Fields:
    config = renamed(data, _NAMES)
    if "kv_lora_rank" in data:
        experts = {"n_routed_experts": data.get("num_experts"), "num_nextn_predict_layers": 0}
        family, config = "deepseek_v3", config | experts | {"q_lora_rank": data.get("q_lora_rank") or None}
    elif "n_key_heads" in data:
        family = "qwen3_5_moe_text" if "num_experts" in data else "qwen3_5_text"
        config |= renamed(data, {"num_experts": "num_experts"})
    elif "moe" in data:
        family = "mixtral"
        config |= _mixture(data["moe"]) | renamed(data, {"sliding_window": "sliding_window"})
    elif "head_dim" in data and "num_experts" not in data and not any(key in data for key in _OF_QWEN):
        family = "mistral"
        config["sliding_window"] = data.get("sliding_window")
    elif "head_dim" in data:
        family = "qwen3_moe" if "num_experts" in data else "qwen3"
        config |= renamed(data, {"num_experts": "num_experts"})
        if "num_experts" in data:
            config.setdefault("intermediate_size", config.get("moe_intermediate_size"))
    elif "num_experts" in data:
        expected = "a flavour with experts says how its attention looks (head_dim or latent ranks)"
        raise InvalidInput("num_experts", data["num_experts"], expected)
    else:
        family = "llama"
        config.setdefault("intermediate_size", _llama_width(data))
    vision = _OF_VISION if "patch_size" in data else ()
    left = name_left_over(data, (*_NAMES, *_OTHERS[family], *_NO_PARAMETERS, *vision), strict=True)
    of_moe = {f"moe.{key}": name for key, name in _OF_MOE.items()} if family == "mixtral" else {}
    fields = as_family(family, config, of_moe | _NAMES)
    fields |= {"notes": (*left, *fields["notes"])}
    if family in ("qwen3", "qwen3_moe") and data.get("qk_norm") is False:
        fields |= {"qk_norm": "none"}
    if family == "mistral":
        note = "read as Mistral's: queries and keys have no norms (qk_norm true would say that they have)"
        fields |= {"notes": (*fields["notes"], note)}
    if "tie_word_embeddings" not in config:
        untied = "whether embedding and head are tied is not in the file: they are planned as two tables"
        fields |= {"notes": (*fields["notes"], untied)}
    if "patch_size" in data:
        note = "vision encoder: only the text model is planned, the rest isn't costed"
        fields |= {"notes": (note, *fields["notes"])}
    return fields


def _mixture(moe: Any) -> dict[str, Any]:
    """Mixtral's block of experts; they are as wide as ``hidden_dim``."""
    if not isinstance(moe, Mapping):
        raise InvalidInput("moe", moe, "an object of num_experts and num_experts_per_tok is expected")
    odd = [key for key in moe if key not in _OF_MOE and holds_something(moe[key]) and not is_harmless(key)]
    if odd:
        raise InvalidInput(f"moe.{odd[0]}", moe[odd[0]], "experts of Mixtral's shape are understood only")
    return renamed(moe, _OF_MOE)


def _llama_width(data: Mapping[str, Any]) -> Any:
    """Two thirds of four times the width, by ``ffn_dim_multiplier``, rounded up to ``multiple_of``."""
    dim, factor = data.get("dim"), data.get("ffn_dim_multiplier")
    multiple = data.get("multiple_of", framework_defaults("torchtitan")["multiple_of"])
    if type(dim) is not int or type(multiple) is not int or dim < 1 or multiple < 1:
        return None
    width = 2 * 4 * dim // 3
    if isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor < dim:
        width = int(factor * width)
    return -(-width // multiple) * multiple
