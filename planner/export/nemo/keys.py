"""How a NeMo recipe spells Megatron-Core's settings: by the part of it that they belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from costmodel.spec.native.reading import layer_pattern
from planner.export.megatron.core import Spelled

STRATEGY, DDP, PLUGIN = "trainer.strategy", "trainer.strategy.ddp", "trainer.plugins"
MODEL, OPTIMIZER, DATA = "model.config", "optim.config", "data"
_PARTS = {
    STRATEGY: (
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
        "context_parallel_size", "sequence_parallel", "expert_model_parallel_size", "expert_tensor_parallel_size",
        "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "pipeline_model_parallel_layout",
        "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
        "num_distributed_optimizer_instances",
    ),
    DDP: ("overlap_grad_reduce", "overlap_param_gather"),
    OPTIMIZER: (
        "optimizer", "use_distributed_optimizer", "optimizer_cpu_offload", "optimizer_offload_fraction",
        "use_precision_aware_optimizer", "exp_avg_dtype", "exp_avg_sq_dtype",
    ),
    DATA: ("micro_batch_size", "global_batch_size"),
    PLUGIN: ("grad_reduce_in_fp32",),
}  # fmt: skip
_PART_OF = {name: part for part, names in _PARTS.items() for name in names}

# Without meaning where a recipe's model is built, or of sharding that is refused.
_NOT_THERE = frozenset({
    "max_position_embeddings", "use_megatron_fsdp", "data_parallel_sharding_strategy", "gradient_accumulation_fusion",
})  # fmt: skip

DTYPES: Mapping[str, str] = {"bf16": "torch.bfloat16", "fp32": "torch.float32"}

LACKING: Mapping[str, str] = {
    "attention_output_gate": "attention_output_gate",
    "attention_sinks": "softmax_type",
    "moe.latent_size": "moe_latent_size",
    "moe.shared_expert_gate": "moe_shared_expert_gate",
}
"""Field of a model -> the setting that newer Megatron-Cores have for it."""

CALLBACKS = "trainer.callbacks"
_CALLBACK = "nemo.lightning.pytorch.callbacks.megatron_comm_overlap.MegatronCommOverlapCallback"
"""What prepares the buffers of tensor parallel overlap, under the name by which the command line finds it."""

_MIXED = "nemo.collections.llm.recipes.precision.mixed_precision"
PRECISIONS: Mapping[str, str] = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8": "bf16_with_fp8_mixed",
    "fp8-current": "bf16_with_fp8_current_scaling_mixed",
    "fp8-blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
}
"""Precision recipe -> NeMo's of the same numbers."""

# What recipes set in their own way, so that it is said also where a plan has none of it.
NEUTRAL: Mapping[str, Any] = {
    CALLBACKS: None,
    "trainer.strategy.fsdp": None,
    "trainer.strategy.sequence_parallel": False,
    "trainer.strategy.virtual_pipeline_model_parallel_size": None,
    "trainer.strategy.pipeline_model_parallel_layout": None,
    "trainer.strategy.num_layers_in_first_pipeline_stage": None,
    "trainer.strategy.num_layers_in_last_pipeline_stage": None,
    "trainer.strategy.account_for_embedding_in_pipeline_split": False,
    "trainer.strategy.account_for_loss_in_pipeline_split": False,
    "trainer.strategy.num_distributed_optimizer_instances": 1,
    "trainer.strategy.ddp.overlap_grad_reduce": False,
    "trainer.strategy.ddp.overlap_param_gather": False,
    "model.config.tp_comm_overlap": False,
    "model.config.overlap_p2p_comm": False,
    "model.config.batch_p2p_comm": True,
    "model.config.hierarchical_context_parallel_sizes": None,
    "model.config.recompute_granularity": None,
    "model.config.recompute_method": None,
    "model.config.recompute_num_layers": None,
    "model.config.recompute_modules": None,
    "model.config.cpu_offloading": False,
    "model.config.overlap_moe_expert_parallel_comm": False,
    "model.config.moe_enable_deepep": False,
    "model.config.moe_expert_capacity_factor": None,
    "model.config.moe_pad_expert_input_to_capacity": False,
    "model.config.mtp_num_layers": None,
    "model.config.add_qkv_bias": False,
    "optim.config.optimizer_cpu_offload": False,
    "optim.config.use_precision_aware_optimizer": False,
    "optim.config.exp_avg_dtype": "torch.float32",
    "optim.config.exp_avg_sq_dtype": "torch.float32",
    "optim.config.main_grads_dtype": "torch.float32",
    "optim.config.main_params_dtype": "torch.float32",
}


def spelled(name: str, value: Any) -> Spelled:
    """The key of a setting and its value."""
    if name in _NOT_THERE or name in LACKING.values():
        return None
    if name == "moe_flex_dispatcher_backend":
        # Before it could be named, the flex dispatcher had DeepEP alone.
        return f"{MODEL}.moe_enable_deepep", True
    if name == "moe_layer_freq":
        value = layer_pattern(value)
    if name.endswith("_dtype"):
        value = DTYPES[value]
    if name == "tp_comm_overlap" and value:
        return CALLBACKS, True
    return f"{_PART_OF.get(name, MODEL)}.{name}", value


def precision_settings(precision: str) -> dict[str, Any]:
    """Settings of one of ``PRECISIONS``: NeMo's recipe under the name by which the command line finds it, whole."""
    return {
        PLUGIN: f"{_MIXED}.{PRECISIONS[precision]}",
        # Its recipe for current scaling keeps layers at both ends in 16 bits; plans have none of those.
        f"{PLUGIN}.first_last_layers_bf16": False,
        f"{STRATEGY}.pipeline_dtype": "torch.float16" if precision == "fp16" else "torch.bfloat16",
    }


def overlap_callback(settings: Mapping[str, Any]) -> str:
    """The callback of tensor parallel overlap, in place of the recipe's; it repeats what it would set otherwise."""
    more = (f"{name}={str(settings[f'{DDP}.{name}']).lower()}" for name in _PARTS[DDP])
    return f"[{_CALLBACK}({','.join(('tp_comm_overlap=true', *more))})]"


def override(key: str, value: Any) -> str:
    """``key=value`` as NeMo-Run's command line reads it: Python's literals, and words without quotes."""
    if value is None or isinstance(value, bool):
        return f"{key}={str(value).lower().replace('none', 'null')}"
    return f"{key}={json.dumps(value) if isinstance(value, list) else value}"
