"""What free text says of a model: dense layers, multi-token prediction; and what its blank columns are taken for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from costmodel.runs.word_lists import document
from costmodel.spec.base import Frozen, PositiveFloat, PositiveInt
from costmodel.spec.validation import build


class ModelDefaults(Frozen):
    """What a model's blank columns are taken for."""

    vocab: PositiveInt
    head_dim: PositiveInt
    ffn_over_hidden: PositiveFloat
    gated_ffn_over_hidden: PositiveFloat
    ffn_multiple: PositiveInt
    layers_per_hidden: PositiveFloat
    latent_attention: str


@lru_cache(maxsize=1)
def model_defaults() -> ModelDefaults:
    """What blank columns of a model are taken for."""
    return build(ModelDefaults, document()["model_defaults"], "words.model_defaults")


@lru_cache(maxsize=4096)
def leading_dense_layers(text: str) -> tuple[int, int, tuple[str, ...]]:
    """(dense layers in front, every how many layers has experts after them, notes)."""
    lowered, table = text.strip().lower(), document()["model"]
    if not lowered or re.search(table["no_dense_layers"], lowered):
        return 0, 1, ()
    if re.search(table["every_other"], lowered):
        return 0, 2, ()
    step = _number(table["layer_step"], lowered)
    if step is not None:
        return 0, max(step, 1), ()
    last, first = _number(table["last_dense_layer"], lowered), _number(table["dense_layers"], lowered)
    if last is not None or first is not None:
        return (last + 1 if last is not None else first or 0), 1, ()
    return 0, 1, (f"moe_dense_layers {text!r} is not understood: all layers have experts",)


@lru_cache(maxsize=4096)
def mtp_layers(text: str) -> int | None:
    """Multi-token-prediction layers that a note speaks of; None when it speaks of none."""
    lowered, table = text.lower(), document()["model"]
    if re.search(table["no_mtp"], lowered):
        return 0
    return _number(table["mtp_layers"], lowered)


def _number(patterns: Sequence[str], lowered: str) -> int | None:
    for pattern in patterns:
        match = re.search(pattern, lowered)
        if match:
            return int(match.group(1)[:6])
    return None


@lru_cache(maxsize=1)
def model_prefixes() -> tuple[str, ...]:
    """Makers' names that people write before a model's."""
    return tuple(document()["model"]["prefixes"])


@lru_cache(maxsize=1)
def model_suffixes() -> frozenset[str]:
    """Words that may follow a catalog name without making it another model."""
    return frozenset(document()["model"]["suffixes"])
