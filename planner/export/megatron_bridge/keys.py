"""How Megatron-Bridge's configuration spells Megatron-Core's settings: under the part of it that they belong to."""

from __future__ import annotations

import re
from typing import Any

from costmodel.spec.native.reading import layer_pattern
from planner.export.megatron.core import Spelled

_PARTS = {
    "train": ("micro_batch_size", "global_batch_size"),
    "ddp": (
        "use_distributed_optimizer", "use_megatron_fsdp", "data_parallel_sharding_strategy", "overlap_param_gather",
        "num_distributed_optimizer_instances", "overlap_grad_reduce",
    ),
    "optimizer": (
        "optimizer", "optimizer_cpu_offload", "optimizer_offload_fraction", "use_precision_aware_optimizer",
    ),
    "checkpoint": ("ckpt_format",),
}  # fmt: skip
PART_OF = {name: part for part, names in _PARTS.items() for name in names}
# The recipe's own, or without meaning where a recipe's model is built.
_NOT_THERE = frozenset({"max_position_embeddings"})

PRECISIONS = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8-current": "bf16_with_fp8_current_scaling_mixed",
    "fp8-blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
}
"""Precision recipe -> Megatron-Bridge's of the same numbers (training/mixed_precision.py of the 0.3.1 wheel)."""

# What recipes set in their own way, so that it is said also where a plan has none of it.
NEUTRAL: dict[str, Any] = {
    "comm_overlap": None,
    "model.tp_comm_overlap": False,
    "model.sequence_parallel": False,
    "model.pipeline_model_parallel_layout": None,
    "model.virtual_pipeline_model_parallel_size": None,
    "model.num_layers_in_first_pipeline_stage": None,
    "model.num_layers_in_last_pipeline_stage": None,
    "model.account_for_embedding_in_pipeline_split": False,
    "model.account_for_loss_in_pipeline_split": False,
    "model.overlap_p2p_comm": False,
    "model.batch_p2p_comm": True,
    "model.recompute_granularity": None,
    "model.recompute_method": None,
    "model.recompute_num_layers": None,
    "model.recompute_modules": None,
    "model.cpu_offloading": False,
    "model.overlap_moe_expert_parallel_comm": False,
    "model.moe_expert_capacity_factor": None,
    "model.moe_pad_expert_input_to_capacity": False,
    "model.hierarchical_context_parallel_sizes": None,
    "model.mtp_num_layers": None,
    "model.add_qkv_bias": False,
    "model.softmax_type": "vanilla",
    "ddp.use_megatron_fsdp": False,
    "ddp.data_parallel_sharding_strategy": "no_shard",
    "ddp.num_distributed_optimizer_instances": 1,
    "ddp.overlap_grad_reduce": False,
    "ddp.overlap_param_gather": False,
    "optimizer.optimizer_cpu_offload": False,
    "optimizer.use_precision_aware_optimizer": False,
}

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_+./-]*")
_WORDS = ("true", "false", "null", "inf", "nan")


def spelled(name: str, value: Any) -> Spelled:
    """The key of a setting and its value."""
    if name in _NOT_THERE:
        return None
    if name == "moe_layer_freq":
        value = layer_pattern(value)
    return f"{PART_OF.get(name, 'model')}.{name}", value


def override(key: str, value: Any) -> str:
    """``key=value`` in Hydra's grammar."""
    return f"{key}={_said(value)}"


def _said(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_said, value))}]"
    if not isinstance(value, str):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
