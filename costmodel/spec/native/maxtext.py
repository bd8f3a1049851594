"""MaxText's model YAML: ``decoder_block`` names the family, ``base_*`` its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.class_defaults import framework_defaults
from costmodel.spec.families.common import Fields
from costmodel.spec.native.reading import as_family, name_left_over, renamed

_NAMES = {
    "base_num_decoder_layers": "num_hidden_layers",
    "base_emb_dim": "hidden_size",
    "base_num_query_heads": "num_attention_heads",
    "base_num_kv_heads": "num_key_value_heads",
    "base_mlp_dim": "intermediate_size",
    "base_moe_mlp_dim": "moe_intermediate_size",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings",
    "logits_via_embedding": "tie_word_embeddings",
    "attention_bias": "attention_bias",
    "mlp_bias": "mlp_bias",
    "use_qk_norm": "use_qk_norm",
    "sliding_window_size": "sliding_window",
    "num_experts": "num_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "interleave_moe_layer_step": "interleave_moe_layer_step",
    "inhomogeneous_layer_cycle_interval": "full_attention_interval",
    "first_num_dense_layers": "first_k_dense_replace",
    "shared_experts": "n_shared_experts",
    "kv_lora_rank": "kv_lora_rank",
    "qk_nope_head_dim": "qk_nope_head_dim",
    "qk_rope_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
    "n_routing_groups": "n_group",
    "topk_routing_group": "topk_group",
    "gdn_num_value_heads": "linear_num_value_heads",
    "gdn_num_key_heads": "linear_num_key_heads",
    "gdn_value_head_dim": "linear_value_head_dim",
    "gdn_key_head_dim": "linear_key_head_dim",
    "gdn_conv_kernel_dim": "linear_conv_kernel_dim",
}
# A decoder block -> the model_type whose layers it has.
_FAMILIES = {
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "gpt3": "gpt2",
    "gpt_oss": "gpt_oss",
    "llama2": "llama",
    "llama4": "llama4_text",
    "mistral": "mistral",
    "mixtral": "mixtral",
    "olmo3": "olmo3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_5": "qwen3_5_moe_text",
    "qwen3_moe": "qwen3_moe",
    "qwen3_next": "qwen3_next",
}
_REFUSED = {
    "engram_layers": "memory layers are not supported",
    "mhc_expansion_rate": "hyper-connections are not supported",
    "num_kv_shared_layers": "layers that share keys and values are not supported",
    "global_num_kv_heads": "layers with different numbers of KV heads are not supported",
}

_OTHERS = (
    "attention_type",
    "decoder_block",
    "q_lora_rank",
    "mlp_activations",
    "routed_bias",
    "use_indexer",
    "chunk_attn_window_size",
    "indexer_head_dim",
    "indexer_n_heads",
)

_OF_BLOCK = {
    "gpt_oss": ("full_attention_interval",),
    "llama4": ("full_attention_interval", "moe_intermediate_size", "n_shared_experts"),
    "qwen3_next": ("n_shared_experts",),
    "qwen3_5": ("n_shared_experts",),
}
_NONE_BY_NUMBER = ("base_moe_mlp_dim", "n_routing_groups", "sliding_window_size", "topk_routing_group")
_OTHER_ATTENTION = ("mla", "compressed")
_REMAT = ("remat", "device", "offload")


def recognises(data: Mapping[str, Any]) -> bool:
    return "base_emb_dim" in data or "base_num_decoder_layers" in data


def fields_of(data: Mapping[str, Any]) -> Fields:
    block = data.get("decoder_block", "llama2")
    for key, why in _REFUSED.items():
        if data.get(key):
            raise InvalidInput(key, data[key], why)
    defaults = framework_defaults("maxtext")
    scale = data.get("global_parameter_scale", 1)
    if scale != defaults["global_parameter_scale"]:
        raise InvalidInput("global_parameter_scale", scale, "1 is expected, with the sizes as they are in the end")
    data = {key: value for key, value in data.items() if key not in _NONE_BY_NUMBER or value not in (-1, 0)}
    config = {"head_dim": defaults["head_dim"], "tie_word_embeddings": False} | renamed(data, _NAMES)
    if block == "deepseek":
        return _deepseek(data, config)
    if data.get("attention_type") in _OTHER_ATTENTION:
        expected = "attention with keys and values of their own is expected for this decoder_block"
        raise InvalidInput("attention_type", data["attention_type"], expected)
    family = _FAMILIES.get(block) if isinstance(block, str) else None
    if family is None:
        raise InvalidInput("decoder_block", block, f"known: {', '.join(sorted([*_FAMILIES, 'deepseek']))}")
    fields = as_family(family, _adapted(block, data, config), _NAMES, apart=_said_otherwise(block, data), strict=False)
    activations = data.get("mlp_activations")
    if isinstance(activations, list) and activations:
        fields |= {"gated_mlp": len(activations) > 1}  # the second is the gate's
    if block == "gemma2":
        # One block is a pair of layers, a local and a global one.
        layers = 2 * fields["num_layers"]
        fields |= {"num_layers": layers}
        fields |= {"num_sliding_layers": layers // 2} if fields.get("sliding_window") else {}
    vision = any(_is_of_vision(key) for key in data)
    said = ("vision or audio encoder: only the text model is planned, the rest isn't costed",) if vision else ()
    return fields | {"notes": (*said, *_left_over(data, fields), *fields["notes"])}


def _said_otherwise(block: str, data: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys that a block takes from others (see ``_adapted``) or has no use for, and those that say what is usual."""
    defaults = framework_defaults("maxtext")
    usual = [name for key, name in _NAMES.items() if key in defaults and data.get(key) == defaults[key]]
    return (*_OF_BLOCK.get(block, ()), *usual)


def _is_of_vision(key: str) -> bool:
    return key.endswith(("_for_vit", "_for_audio")) or key.startswith("vision_")


def _left_over(data: Mapping[str, Any], fields: Fields) -> tuple[str, ...]:
    said = ["use_post_attn_norm", "use_post_ffw_norm"] if fields.get("norms_per_layer") == 4 else []
    said += ["attention_sink"] if fields.get("attention_sinks") else []
    own = {key: value for key, value in data.items() if not _is_of_vision(key) and value not in _REMAT}
    return name_left_over(own, (*_NAMES, *_REFUSED, *_OTHERS, *said), strict=False)


def _adapted(block: str, data: Mapping[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """What a family's keys hold that MaxText says in another way."""
    if block == "llama4":
        return config | {
            "intermediate_size": config.get("moe_intermediate_size"),
            "intermediate_size_mlp": config.get("intermediate_size"),
            "attention_chunk_size": data.get("chunk_attn_window_size"),
        }
    if block == "gpt3":
        sizes = {"n_inner": config.pop("intermediate_size", None), "n_positions": data.get("trainable_position_size")}
        return config | sizes
    if block in ("mistral", "qwen2"):
        return config | {"sliding_window": config.get("sliding_window")}
    if block in ("qwen3_next", "qwen3_5"):
        shared = data.get("shared_experts", 0)
        width = shared * data["base_moe_mlp_dim"] if isinstance(shared, int) and data.get("base_moe_mlp_dim") else 0
        return config | {"shared_expert_intermediate_size": width}
    if block == "olmo3":
        return config | {"sliding_window_pattern": config.pop("full_attention_interval", None)}
    return config


def _deepseek(data: Mapping[str, Any], config: dict[str, Any]) -> Fields:
    """Without ``attention_type: mla`` the block is not DeepSeek's; a rank of 0 is none."""
    if data.get("attention_type") != "mla":
        raise InvalidInput("attention_type", data.get("attention_type"), "decoder_block deepseek goes with mla")
    config |= {"num_local_experts": config.pop("num_experts", None), "num_nextn_predict_layers": 0}
    config |= {"q_lora_rank": data.get("q_lora_rank") or None, "n_routed_experts": config["num_local_experts"]}
    # Its head_dim is not used: queries have the sum of both parts.
    config.pop("head_dim", None)
    names = _NAMES | {"num_experts": "n_routed_experts"}
    heads = {"num_key_value_heads": config.get("num_attention_heads"), "head_dim": 1}
    family = "deepseek_v3" if data.get("routed_bias") else "deepseek_v2"
    apart = (*_said_otherwise("deepseek", data), "n_routed_experts", "num_local_experts", "num_nextn_predict_layers")
    fields = as_family(family, config | heads, names, apart=apart, strict=False)
    fields |= {"notes": (*_left_over(data, fields), *fields["notes"])}
    if data.get("use_indexer"):
        note = "sparse attention: the indexer is left out, and attention is priced as if it saw every key"
        fields |= {"notes": (*fields["notes"], note)}
    return fields
