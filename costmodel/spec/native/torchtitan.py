"""torchtitan's flavours, by the arguments that their builders take; Meta's params.json has the same names.

Which architecture it is, is told by the arguments: latent ranks are DeepSeek's, keys of a delta net Qwen 3.5's, a
``head_dim`` beside them Qwen 3's, and ``multiple_of`` or nothing more Llama's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.families.common import Fields
from costmodel.spec.native.reading import as_family, renamed

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
    fields = as_family(family, config, _NAMES)
    if "tie_word_embeddings" not in config:
        untied = "whether embedding and head are tied is not in the file: they are planned as two tables"
        fields |= {"notes": (*fields["notes"], untied)}
    if "patch_size" in data:
        note = "vision encoder: only the text model is planned, the rest isn't costed"
        fields |= {"notes": (note, *fields["notes"])}
    return fields


def _llama_width(data: Mapping[str, Any]) -> Any:
    """Two thirds of four times the width, by ``ffn_dim_multiplier``, rounded up to ``multiple_of``."""
    dim, multiple, factor = data.get("dim"), data.get("multiple_of", 256), data.get("ffn_dim_multiplier")
    if type(dim) is not int or type(multiple) is not int or dim < 1 or multiple < 1:
        return None
    width = 2 * 4 * dim // 3
    if isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor < dim:
        width = int(factor * width)
    return -(-width // multiple) * multiple
