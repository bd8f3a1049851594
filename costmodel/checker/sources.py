"""Where frameworks ask what only a finished plan says: the judge's slugs that no rule on columns has."""

from __future__ import annotations

from collections.abc import Mapping

_CATALOG = "the framework's file in costmodel/catalog/frameworks"

_EVERYWHERE: Mapping[str, str] = {
    "offload_known": _CATALOG,
    "recompute_modules_known": _CATALOG,
    "recompute_interval_known": _CATALOG,
}

_MEGATRON = "megatron-core 0.16.1 (PyPI) megatron/core/"
_OWN: Mapping[str, Mapping[str, str]] = {
    "megatron-core": {
        "tp_overlap_needs_sequence_parallel": "NVIDIA/Megatron-LM d98e8a64ddf3 (2026-08-22) "
        "megatron/training/arguments.py:1442",
        "ep_overlap_without_moe_recompute": "NVIDIA/Megatron-LM d98e8a64ddf3 (2026-08-22) "
        "megatron/core/transformer/transformer_config.py:3003-3050; 0.16.1 doesn't ask",
        "fp8_norms_run_once": "megatron-core 0.14.0 (PyPI) megatron/core/transformer/transformer_config.py:912-918",
        "recompute_modules_in_model": _MEGATRON + "transformer/transformer_config.py:1213-1222",
        "activation_offload_without_pipeline": _MEGATRON + "transformer/transformer_config.py:1144",
        "activation_offload_without_recompute": _MEGATRON + "transformer/transformer_config.py:1149",
        "optimizer_offload_is_precision_aware": "NVIDIA/Megatron-LM d98e8a64ddf3 (2026-08-22) "
        "megatron/training/arguments.py, near 1870; megatron-core 0.12.0 (PyPI) optimizer/optimizer_config.py:165-172",
    },
    "deepspeed": {
        "optimizer_offload_is_sharded": "deepspeed 0.19.8 (PyPI) deepspeed/runtime/zero/config.py:171",
        "parameter_offload_is_sharded": "deepspeed 0.19.8 (PyPI) deepspeed/runtime/zero/offload_config.py:22",
        "activation_offload_of_checkpoints": "deepspeed 0.19.8 (PyPI) "
        "deepspeed/runtime/activation_checkpointing/checkpointing.py:403",
    },
    "torchtitan": {
        "parameter_offload_is_sharded": "torchtitan 0.2.2 (PyPI) torchtitan/models/llama3/infra/parallelize.py:125-148",
    },
    "accelerate": {
        "parameter_offload_is_sharded": "accelerate 1.15.0 (PyPI) accelerate/utils/dataclasses.py, "
        "FullyShardedDataParallelPlugin.cpu_offload",
    },
}


def source_of(rules: str | None, slug: str) -> str | None:
    """Where a framework of that rule set asks it; None where the planner alone does."""
    return _OWN.get(rules or "", {}).get(slug) or _EVERYWHERE.get(slug)
