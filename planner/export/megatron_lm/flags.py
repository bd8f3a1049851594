"""How Megatron-LM's command line spells Megatron-Core's settings: dashes, and a few names of its own."""

from __future__ import annotations

from typing import Any

from planner.export.megatron.core import Spelled

# Setting -> (flag, the value that the flag stands for); the other value is what silence means.
SWITCHES = {
    "gated_linear_unit": ("swiglu", True),
    "add_bias_linear": ("disable-bias-linear", False),
    "share_embeddings_and_output_weights": ("untie-embeddings-and-output-weights", False),
    "gradient_accumulation_fusion": ("no-gradient-accumulation-fusion", False),
}
NAMES = {
    "num_moe_experts": "num-experts",
    "fp8": "fp8-format",
    "fp4": "fp4-format",
    "num_layers_in_first_pipeline_stage": "decoder-first-pipeline-num-layers",
    "num_layers_in_last_pipeline_stage": "decoder-last-pipeline-num-layers",
}


def spelled(name: str, value: Any) -> Spelled:
    """The flag of a setting, without its dashes in front, and its value; True for one without a value."""
    if name == "grad_reduce_in_fp32":
        return ("accumulate-allreduce-grads-in-fp32" if value else "grad-reduce-in-bf16"), True
    if isinstance(value, bool):
        word, when = SWITCHES.get(name, (kebab(name), True))
        return (word, True) if value is when else None
    return NAMES.get(name, kebab(name)), value


def kebab(name: str) -> str:
    return name.replace("_", "-")


def words_of(word: str, value: Any) -> list[str]:
    """The command line's words of one flag."""
    if value is True:
        return [f"--{word}"]
    values = value if isinstance(value, list) else [value]
    return [f"--{word}", *(f"{entry:g}" if isinstance(entry, float) else str(entry) for entry in values)]
