"""A plan as a configuration of Megatron-Core: the model's sizes, the degrees, and the layers of every chunk."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from megatron.core import transformer
from megatron.core.transformer import TransformerConfig
from megatron_words import Case, NoWord, config_fields, flags_for, said


def config_of(case: Case, **changes: Any) -> TransformerConfig:
    """The configuration of the model under the plan, with the plan's layers as a layout list, or by flags."""
    model = case["model"]
    moe, mla = model["moe"], model["mla"]
    kind = getattr(transformer, "MLATransformerConfig", None) if mla else TransformerConfig
    if kind is None:
        raise NoWord("latent attention")
    known = config_fields(kind)
    settings: dict[str, Any] = {
        "num_layers": model["num_layers"],
        "hidden_size": model["hidden_size"],
        "ffn_hidden_size": model["ffn_hidden_size"],
        "num_attention_heads": model["num_heads"],
        "num_query_groups": model["num_kv_heads"],
        "kv_channels": model["head_dim"],
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "tensor_model_parallel_size": case["tp"],
        "sequence_parallel": case["tp"] > 1,
        "context_parallel_size": case["cp"],
        "pipeline_model_parallel_size": case["pp"],
        "expert_model_parallel_size": case["ep"],
        "expert_tensor_parallel_size": case["etp"],
        "pipeline_dtype": torch.bfloat16,
        "params_dtype": torch.bfloat16,
        "bf16": True,
        "use_cpu_initialization": True,
        "perform_initialization": False,
    }
    if case["pp"] > 1:
        settings["virtual_pipeline_model_parallel_size"] = case["vpp"] if case["vpp"] > 1 else None
        settings |= layers_said(case, known)
    if case["cp"] > 1:
        settings["cp_comm_type"] = case["cp_comm_type"]
    if model["num_mtp_layers"]:
        settings["mtp_num_layers"] = model["num_mtp_layers"]
    if model["hybrid"]:
        settings |= mixer(model["hybrid"]["mixer"])
    if moe:
        settings |= {
            "num_moe_experts": moe["num_experts"],
            "moe_router_topk": moe["top_k"],
            "moe_ffn_hidden_size": moe["expert_ffn_hidden_size"],
            "moe_shared_expert_intermediate_size": moe["shared_expert_ffn_hidden_size"] or None,
            "moe_token_dispatcher_type": "alltoall",
        }
    if mla:
        settings |= {
            "q_lora_rank": mla["q_lora_rank"],
            "kv_lora_rank": mla["kv_lora_rank"],
            "qk_head_dim": mla["qk_nope_head_dim"],
            "qk_pos_emb_head_dim": mla["qk_rope_head_dim"],
            "v_head_dim": mla["v_head_dim"],
            "rope_type": "rope",
        }
        # Latent attention has no query groups.
        del settings["num_query_groups"]
    if moe and not moe["num_dense_layers"]:
        # Old versions know one width, or want both to be the same.
        settings["ffn_hidden_size"] = moe["expert_ffn_hidden_size"]
    silent = {
        "moe_ffn_hidden_size": settings["ffn_hidden_size"],
        "moe_shared_expert_intermediate_size": None,
        "rope_type": "rope",
    }
    silent |= {"expert_tensor_parallel_size": case["tp"] if moe else 1, "cp_comm_type": "p2p"}
    return kind(**said(known, settings | changes, silent))


def layers_said(case: Case, known: set[str]) -> dict[str, Any]:
    """The plan's layers as a layout where the version has one that can hold them, else by flags."""
    model, chunks = case["model"], case["chunks"]
    if "pipeline_model_parallel_layout" in known:
        stages = layout(chunks, model["num_mtp_layers"])
        with contextlib.suppress(NotImplementedError):
            bare_config(model, case["pp"], case["vpp"], {"pipeline_model_parallel_layout": stages})
            return {"pipeline_model_parallel_layout": stages}
    return flags_for(case, lambda flags: bare_config(model, case["pp"], case["vpp"], flags))


def mixer(hybrid: dict[str, Any]) -> dict[str, Any]:
    """A gated delta net in every second layer."""
    return {
        "experimental_attention_variant": hybrid["kind"],
        "linear_attention_freq": 2,
        "linear_num_value_heads": hybrid["num_heads"],
        "linear_value_head_dim": hybrid["head_dim"],
        "linear_num_key_heads": hybrid["num_key_heads"],
        "linear_key_head_dim": hybrid["key_head_dim"],
        "linear_conv_kernel_dim": hybrid["conv_kernel"],
    }


def bare_config(model: dict[str, Any], pp: int, vpp: int, flags: dict[str, Any]) -> TransformerConfig:
    """As much of a configuration as the layers of a pipeline need."""
    settings = {
        "num_layers": model["num_layers"],
        "mtp_num_layers": model["num_mtp_layers"] or None,
        "hidden_size": 8,
        "num_attention_heads": 1,
        "pipeline_model_parallel_size": pp,
        "virtual_pipeline_model_parallel_size": vpp if vpp > 1 else None,
        "pipeline_dtype": torch.bfloat16,
    }
    return TransformerConfig(**said(config_fields(TransformerConfig), settings | flags, {"mtp_num_layers": None}))


def layout(chunks: list[list[int]], num_mtp_layers: int) -> list[list[str]]:
    """Layer names of every virtual stage in the order in which a micro-batch meets them."""
    stages = [["decoder"] * device[turn] for turn in range(len(chunks[0])) for device in chunks]
    stages[0].insert(0, "embedding")
    stages[-1] += ["mtp"] * num_mtp_layers + ["loss"]
    return stages
