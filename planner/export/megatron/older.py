"""Names of NeMo 1.x's YAML as Megatron-Core's settings: ``model.`` held the run's settings beside the model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# NeMo 1.23: examples/nlp/language_modeling/conf/megatron_gpt_config.yaml.
_NAMES = {
    "model.activations_checkpoint_granularity": "model.recompute_granularity",
    "model.activations_checkpoint_method": "model.recompute_method",
    "model.activations_checkpoint_num_layers": "model.recompute_num_layers",
    "model.encoder_seq_length": "model.seq_length",
}
_OPTIMIZERS = {
    "fused_adam": ("adam", False),
    "adamw": ("adam", False),
    "distributed_fused_adam": ("adam", True),
    "mcore_distributed_optim": ("adam", True),
}
_PRECISIONS = {"bf16": "bf16", "bf16-mixed": "bf16", "16": "fp16", "16-mixed": "fp16", "32": "fp32", "32-true": "fp32"}


def with_older_names(found: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with those of NeMo 1.x under today's names; the old ones that are understood are gone."""
    settings = dict(found)
    for old, new in _NAMES.items():
        if settings.get(old) is not None:
            settings.setdefault(new, settings[old])
        settings.pop(old, None)
    optimizer = settings.get("model.optim.name")
    if str(optimizer) in _OPTIMIZERS:
        name, sharded = _OPTIMIZERS[str(settings.pop("model.optim.name"))]
        settings |= {"model.optimizer": name, "model.use_distributed_optimizer": sharded}
    if "swiglu" in str(settings.get("model.activation")):
        settings["model.gated_linear_unit"] = True
    if isinstance(settings.get("model.bias"), bool):
        settings["model.add_bias_linear"] = settings["model.bias"]
    precision = _PRECISIONS.get(str(settings.get("trainer.precision")))
    if precision is not None:
        settings.pop("trainer.precision")
        settings |= {f"model.{kind}": precision == kind for kind in ("bf16", "fp16")}
    return settings
