"""nanotron's YAML: ``model.model_config`` has Hugging Face's keys and a flag that names the class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.families.common import Fields
from costmodel.spec.key_words import holds_something, is_harmless
from costmodel.spec.native.reading import as_family

_FLAGS = {"is_llama_config": "llama", "is_qwen2_config": "llama", "is_starcoder2_config": "starcoder2"}
_WIDTHS_OF_EXPERTS = ("moe_intermediate_size", "shared_expert_intermediate_size")
_OF_EXPERTS = ("num_experts", "top_k", "enable_shared_expert", *_WIDTHS_OF_EXPERTS)


def recognises(data: Mapping[str, Any]) -> bool:
    return _config(data) is not None


def fields_of(data: Mapping[str, Any]) -> Fields:
    config = dict(_config(data) or {})
    names = {f"model_config.{key}": key for key in config}
    if config.get("is_llamoe_config"):
        mixtral = config | {"num_local_experts": config.get("moe_num_experts")}
        apart = ("moe_num_experts", "is_llamoe_config")
        names |= {"model_config.moe_num_experts": "num_local_experts"}
        return as_family("mixtral", mixtral, names, apart=apart)
    family = next((family for flag, family in _FLAGS.items() if config.get(flag)), None)
    if family is None:
        flags = [key for key in config if key.startswith("is_") and key.endswith("_config")]
        expected = f"one of {', '.join([*_FLAGS, 'is_llamoe_config'])} is expected"
        raise InvalidInput("model_config", ", ".join(flags) or None, expected)
    if config.get("tie_word_embeddings") is None:
        config["tie_word_embeddings"] = False
    fields = as_family(family, config, names, apart=(*_FLAGS, "moe_config"))
    experts = config.get("moe_config")
    return fields | _experts(experts, fields) if isinstance(experts, Mapping) else fields


def _config(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    block = data.get("model_config")
    if block is None and isinstance(data.get("model"), Mapping):
        block = data["model"].get("model_config")
    return block if isinstance(block, Mapping) else None


def _experts(experts: Mapping[str, Any], fields: Fields) -> Fields:
    """Experts of the MLP's width unless they have their own; one shared expert of that width where enabled."""
    odd = [key for key in experts if key not in _OF_EXPERTS and holds_something(experts[key]) and not is_harmless(key)]
    if odd:
        expected = f"{', '.join(_OF_EXPERTS)} are understood"
        raise InvalidInput(f"model_config.moe_config.{odd[0]}", experts[odd[0]], expected)
    width = experts.get("moe_intermediate_size", fields["ffn_hidden_size"])
    moe = {
        "num_experts": experts.get("num_experts"),
        "top_k": experts.get("top_k"),
        "expert_ffn_hidden_size": width,
    }
    if experts.get("enable_shared_expert"):
        moe |= {"shared_expert_ffn_hidden_size": experts.get("shared_expert_intermediate_size", width)}
    return {"moe": moe}
