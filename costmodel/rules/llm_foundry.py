"""Rules of LLM Foundry on Composer, as far as it is data parallel: PyTorch DDP and FSDP."""

from __future__ import annotations

from costmodel.rules import shared
from costmodel.rules.rule import Rule

_RELEASE = "llm-foundry 0.22.0 (PyPI) llmfoundry/"

# Pipelines and context parallelism are not on offer in its catalog file, which general rules read.
LLM_FOUNDRY_RULES: tuple[Rule, ...] = (
    shared.without_axes(
        "no_tensor_parallelism",
        "tp",
        what="is planned as data parallel only: its tensor parallelism cuts the MLP alone (tp_config strategy ffn)",
        source=_RELEASE + "utils/config_utils.py:545-567, command_utils/train.py:529",
    ),
    shared.without_axes(
        "no_expert_parallelism",
        "ep",
        "etp",
        what="is planned as data parallel only: expert parallelism is that of MegaBlocks (moe_world_size)",
        source=_RELEASE + "models/layers/ffn.py:373-439",
    ),
)
