"""What free text means: precision, recompute, sharding and the rest, as people write them in tables of runs.

The patterns are data (catalog/words.yaml). Unknown text is never an error: it falls back, and a note says to what.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

from costmodel.catalog.documents import read_mapping
from costmodel.catalog.framework_catalog import load_precision
from costmodel.spec.base import Frozen, PositiveFloat, PositiveInt
from costmodel.spec.cluster import AcceleratorSpec
from costmodel.spec.plan import CpCommType, Offload, Recompute
from costmodel.spec.validation import build
from costmodel.spec.workload import PrecisionRecipe


class Word(Frozen):
    """One pattern and what it means.

    Attributes:
        hybrid: sharded inside groups that are copies of each other.
        note: what to tell of it, after the text itself.
    """

    pattern: str
    means: str | int
    hybrid: bool = False
    note: str = ""


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
def _document() -> dict[str, Any]:
    return read_mapping(resources.files("costmodel.catalog") / "words.yaml", "words")


@lru_cache(maxsize=32)
def _words(*path: str) -> tuple[Word, ...]:
    rows: Any = _document()
    for key in path:
        rows = rows[key]
    return tuple(build(Word, row, "words") for row in rows)


@lru_cache(maxsize=1)
def model_defaults() -> ModelDefaults:
    """What blank columns of a model are taken for."""
    return build(ModelDefaults, _document()["model_defaults"], "words.model_defaults")


def _found(text: str, *path: str) -> Word | None:
    lowered = text.strip().lower()
    return next((word for word in _words(*path) if re.search(word.pattern, lowered)), None)


@lru_cache(maxsize=4096)
def precision_of(text: str, accelerator: AcceleratorSpec) -> tuple[PrecisionRecipe, tuple[str, ...]]:
    """The recipe that a text names, or the nearest one that the device has hardware for."""
    table = _document()["precision"]
    word = _found(text, "precision", "words") if text.strip() else None
    notes: list[str] = []
    name = str(word.means) if word else table["unstated"]
    if word is None:
        notes.append(f"precision {text!r} is not known, {name} taken" if text.strip() else f"precision blank: {name}")
    elif word.note:
        notes.append(f"precision {text!r} {word.note}")
    has = accelerator.peak_flops_per_s
    for candidate in (name, *table["instead"].get(name, [])):
        recipe = load_precision(candidate)
        if recipe.compute in has and recipe.attention_compute in has:
            if candidate != name:
                notes.append(f"{accelerator.name} has no {name}, {candidate} taken")
            return recipe, tuple(notes)
    first = next(iter(has))
    raise AssertionError(f"{accelerator.name} computes in {first} only, which no recipe uses")


@lru_cache(maxsize=4096)
def recompute_of(text: str) -> tuple[Recompute | None, tuple[str, ...] | None, tuple[str, ...]]:
    """(policy or None where it isn't stated, modules where they are named, notes)."""
    if not text.strip():
        return None, None, ("recompute isn't stated: the fastest policy that fits is taken",)
    word, listed = _found(text, "recompute", "words"), _listed_modules(text)
    if word is None and (not listed or ":" in text):
        return None, None, (f"recompute {text!r} is not known: the fastest policy that fits is taken",)
    means = word.means if word else "selective"
    notes = [f"recompute {text!r} {word.note}"] if word and word.note else []
    policy: Recompute = next(name for name in ("none", "selective", "full") if name == means)
    if policy != "selective":
        return policy, None, tuple(notes)
    modules = tuple(str(w.means) for w in _words("recompute", "modules") if re.search(w.pattern, listed))
    unpriced = [p for p in _document()["recompute"]["unpriced_modules"] if re.search(p, listed)]
    if unpriced:
        notes.append(f"recompute {text!r}: whole MLPs or experts have no selective price yet and count as kept")
    return policy, modules if listed else None, tuple(notes)


def _listed_modules(text: str) -> str:
    """What lists modules in a text: all after a colon, or the text itself where it says nothing else."""
    lowered = text.strip().lower()
    _, colon, named = lowered.partition(":")
    if colon:
        return named
    known = [word.pattern for word in _words("recompute", "modules")] + _document()["recompute"]["unpriced_modules"]
    parts = [part for part in re.split(r"[^a-z_]+", lowered) if part]
    return lowered if parts and all(any(re.fullmatch(p, part) for p in known) for part in parts) else ""


@lru_cache(maxsize=4096)
def sharding_of(text: str) -> Word | None:
    """What is sharded over data parallelism; None where the text doesn't say."""
    return _found(text, "sharding", "words") if text.strip() else None


@lru_cache(maxsize=4096)
def shard_group_of(text: str) -> int | None:
    """Over how many ranks the sharding goes, where a text says so."""
    for pattern in _document()["sharding"]["group"]:
        match = re.search(pattern, text.lower())
        if match:
            return int(match.group(1)[:9])
    return None


@lru_cache(maxsize=4096)
def cp_comm_of(text: str, offered: Sequence[CpCommType]) -> CpCommType:
    """How context parallelism exchanges keys and values: as the text says, else as the framework does by default."""
    word = _found(text, "context_parallel")
    default: CpCommType = offered[0] if offered else "p2p"
    return next((kind for kind in offered if word and kind == word.means), default)


@lru_cache(maxsize=4096)
def offload_of(text: str) -> Offload:
    """What lives on the host."""
    word = _found(text, "offload") if text.strip() else None
    kinds: tuple[Offload, ...] = ("optimizer", "activations", "parameters")
    return next((kind for kind in kinds if word and kind == word.means), "none")


@lru_cache(maxsize=4096)
def memory_kind_of(text: str) -> str | None:
    """``first_stage``, ``reserved``, ``device`` or ``allocated``; None where the text doesn't say."""
    word = _found(text, "memory_kind") if text.strip() else None
    return str(word.means) if word else None
