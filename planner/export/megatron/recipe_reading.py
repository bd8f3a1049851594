"""What targets share that override a recipe built on Megatron-Core, Megatron-Bridge and NeMo: reading."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec
from costmodel.spec.native import native_model
from planner.export.megatron.settings import Settings
from planner.export.reading import Read

_BEARING = re.compile(
    r"parallel|pipeline|fsdp|shard|recompute|activations_checkpoint|offload|overlap|dispatcher|capacity|cuda_graph|dtype"
    r"|precision|seq_len|encoder_seq|optim\.name"
)
_SIZES = {"num_layers", "hidden_size", "num_attention_heads", "vocab_size"}


def shell_words(text: str) -> list[str]:
    """The words of a script, or of overrides alone.

    Raises:
        InvalidInput: its quotes don't match.
    """
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise InvalidInput("from", text.strip()[:60], f"its words can't be read: {error}") from None


def said_by(settings: Settings, model: ModelSpec | None, ignored: tuple[str, ...]) -> Read:
    """What was read. Silence is the recipe's own setting, not Megatron-Core's default."""
    return Read(
        plan={name: value for name, value in settings.plan.items() if name in settings.meanings},
        meanings=settings.meanings,
        model=model,
        unread=settings.unread,
        ignored=ignored,
        notes=("What is not overridden is the recipe's, and is not known here: it is taken as usual.",),
    )


def model_under(found: Mapping[str, Any], prefix: str) -> ModelSpec | None:
    """The model's shape where the overrides have it; a recipe's own is not known."""
    shape = {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}
    if not set(shape) >= _SIZES:
        return None
    shape["untie_embeddings_and_output_weights"] = not shape.pop("share_embeddings_and_output_weights", True)
    shape["group_query_attention"] = "num_query_groups" in shape
    shape.setdefault("max_position_embeddings", shape.get("seq_length"))
    try:
        return native_model(shape, "overrides")
    except InvalidInput:
        return None


def left_over(settings: Settings, found: Mapping[str, Any], is_known: Callable[[str], bool]) -> tuple[str, ...]:
    """The keys that say nothing of a plan; what may bear on one and was not read is marked so.

    Args:
        is_known: whether a key was understood, or replaced by another.
    """
    ignored: list[str] = []
    for key in found:
        name = key.rpartition(".")[2]
        if name in settings.read or is_known(key):
            continue
        if _BEARING.search(name) or _BEARING.search(key):
            settings.fail(name, "it may bear on the plan, which has no field for it")
        else:
            ignored.append(key)
    return tuple(ignored)
