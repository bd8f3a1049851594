"""What free text means: precision, recompute, sharding and the rest, as people write them in tables of runs.

The patterns are data (catalog/words.yaml). Unknown text is never an error: it falls back, and a note says to what.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from costmodel.catalog.framework_catalog import load_precision
from costmodel.runs.columns import Run
from costmodel.runs.word_lists import document, found, takes_back, without_negated, words_of
from costmodel.scenario import lacking_format
from costmodel.spec.cluster import AcceleratorSpec
from costmodel.spec.plan import CpCommType, MoeDispatcher, Offload, Recompute, ZeroPlus
from costmodel.spec.workload import PrecisionRecipe


@lru_cache(maxsize=4096)
def stated_precision(text: str) -> str:
    """The recipe that a text names, whatever the device has; empty when it names none."""
    word = found(text, "precision", "words") if text.strip() else None
    return str(word.means) if word else ""


@lru_cache(maxsize=4096)
def precision_of(text: str, accelerator: AcceleratorSpec) -> tuple[PrecisionRecipe, tuple[str, ...]]:
    """The recipe that a text names, or the nearest one that the device has hardware for."""
    table = document()["precision"]
    word = found(text, "precision", "words") if text.strip() else None
    notes: list[str] = []
    name = str(word.means) if word else table["unstated"]
    if word is None:
        notes.append(f"precision {text!r} is not known, {name} taken" if text.strip() else f"precision blank: {name}")
    elif word.note:
        notes.append(f"precision {text!r} {word.note}")
    for candidate in (name, *table["instead"].get(name, [])):
        recipe = load_precision(candidate)
        if lacking_format(recipe, accelerator) is None:
            if candidate != name:
                notes.append(f"{accelerator.name} has no {name}, {candidate} taken")
            return recipe, tuple(notes)
    first = next(iter(accelerator.peak_flops_per_s))
    raise AssertionError(f"{accelerator.name} computes in {first} only, which no recipe uses")


@lru_cache(maxsize=4096)
def recompute_of(text: str) -> tuple[Recompute | None, tuple[str, ...] | None, tuple[str, ...]]:
    """(policy or None where it isn't stated, modules where they are named, notes)."""
    if not text.strip():
        return None, None, ("recompute isn't stated: the fastest policy that fits is taken",)
    word, listed = found(text, "recompute", "words"), _listed_modules(text)
    if word is None and takes_back(text):
        return "none", None, ()
    if word is None and (not listed or ":" in text):
        return None, None, (f"recompute {text!r} is not known: the fastest policy that fits is taken",)
    means = word.means if word else "selective"
    interval = recompute_interval_of(text) if means == "full" else None
    if interval is not None and interval > 1:
        return "full", None, (f"recompute {text!r} is read as one checkpoint for every {interval} layers",)
    notes = [f"recompute {text!r} {word.note}"] if word and word.note else []
    policy: Recompute = next(name for name in ("none", "selective", "full") if name == means)
    if policy != "selective":
        return policy, None, tuple(notes)
    modules = tuple(str(w.means) for w in words_of("recompute", "modules") if re.search(w.pattern, listed))
    return policy, modules if listed else None, tuple(notes)


@lru_cache(maxsize=4096)
def recompute_interval_of(text: str) -> int | None:
    """How many layers share one checkpoint under full recompute, where a text says so."""
    return _number(document()["recompute"]["interval"], without_negated(text.strip().lower()))


def keeps_a_list_of_its_own(run: Run) -> bool:
    """Whether the notes of a run say that what is kept was listed tensor by tensor."""
    return bool(re.search(document()["recompute"]["custom"], f"{run.overlap_notes}; {run.notes}".lower()))


def offloads_activations(recompute: str) -> bool:
    """Whether a text on recompute says that what is kept goes to the host."""
    return bool(re.search(document()["recompute"]["to_the_host"], recompute.lower())) and not takes_back(recompute)


def _listed_modules(text: str) -> str:
    """What lists modules in a text: all after a colon, or the text itself where it says nothing else."""
    lowered = text.strip().lower()
    _, colon, named = lowered.partition(":")
    if colon:
        return named
    known = [word.pattern for word in words_of("recompute", "modules")]
    parts = [part for part in re.split(r"[^a-z_]+", lowered) if part]
    return lowered if parts and all(any(re.fullmatch(p, part) for p in known) for part in parts) else ""


@lru_cache(maxsize=4096)
def sharding_of(text: str) -> tuple[int | None, bool, tuple[str, ...]]:
    """(ZeRO stage or None where the text doesn't say, whether it is sharded inside groups, notes)."""
    if not text.strip():
        return None, False, ()
    word = found(text, "sharding", "words")
    if word is None and takes_back(text):
        return 0, False, ()
    if word is None:
        return None, False, (f"zero_stage {text!r} is not known: what the framework usually shards is taken",)
    return int(word.means), word.hybrid, ()


@lru_cache(maxsize=4096)
def shard_group_of(text: str) -> int | None:
    """Over how many ranks the sharding goes, where a text says so."""
    return _number(document()["sharding"]["group"], text.lower())


@lru_cache(maxsize=4096)
def zero_plus_of(text: str) -> tuple[ZeroPlus, ...]:
    """The parts of ZeRO++ that a text names; all that it doesn't take back where it names the whole."""
    table, lowered = document()["zero_plus"], text.strip().lower()
    said = without_negated(lowered)
    named = {word.means for word in words_of("zero_plus", "parts") if re.search(word.pattern, said)}
    if not named and re.search(table["whole"], said):
        raw = {word.means for word in words_of("zero_plus", "parts") if re.search(word.pattern, lowered)}
        named = {part for part in get_args(ZeroPlus) if part not in raw}
    return tuple(part for part in get_args(ZeroPlus) if part in named)


@lru_cache(maxsize=4096)
def second_copy_of(text: str) -> int | None:
    """Over how many ranks hpZ keeps its second copy, where a text says so."""
    return _number([document()["zero_plus"]["second_copy"]], text.lower())


def _number(patterns: Sequence[str], lowered: str) -> int | None:
    """What the first pattern that a text holds has in its group; None for 0."""
    for pattern in patterns:
        match = re.search(pattern, lowered)
        if match:
            return int(match.group(1)[:9]) or None
    return None


@lru_cache(maxsize=4096)
def cp_comm_of(text: str, offered: Sequence[CpCommType]) -> CpCommType:
    """How context parallelism exchanges keys and values: as the text says, else as the framework does by default."""
    word = found(text, "context_parallel")
    default: CpCommType = offered[0] if offered else "p2p"
    return next((kind for kind in offered if word and kind == word.means), default)


@lru_cache(maxsize=4096)
def moe_dispatcher_of(text: str, default: MoeDispatcher) -> MoeDispatcher:
    """How tokens reach their experts: as the text says, else ``default``."""
    word = found(text, "moe_dispatcher")
    return next((kind for kind in get_args(MoeDispatcher) if word and kind == word.means), default)


@lru_cache(maxsize=4096)
def overlaps_products(text: str) -> bool:
    """Whether tensor parallel exchanges overlap with products: they do unless the text says that they don't."""
    off = document()["overlap_off"]
    return not any(re.search(pattern, text.lower()) for pattern in (*off["all"], *off["tp"]))


@lru_cache(maxsize=4096)
def names_fused_kernels(text: str) -> bool:
    """Whether the text names kernels for norms, rotary embeddings and gated activations."""
    return bool(re.search(document()["fused_kernels"], text.lower()))


@lru_cache(maxsize=4096)
def overlaps_experts(text: str) -> bool:
    """Whether the text says that dispatch and combine overlap with another micro-batch."""
    word = found(text, "ep_overlap")
    return word is not None and word.means == "together"


@lru_cache(maxsize=4096)
def offload_of(text: str) -> tuple[Offload, tuple[str, ...]]:
    """What lives on the host, and notes."""
    if not text.strip():
        return "none", ()
    word = found(text, "offload")
    kinds: tuple[Offload, ...] = ("optimizer", "activations", "parameters")
    kind = next((kind for kind in kinds if word and kind == word.means), None)
    if kind is not None and not takes_back(text):
        return kind, ()
    if takes_back(text) or text.strip().lower() in ("none", "no", "0", "off", "false"):
        return "none", ()
    return "none", (f"offload {text!r} is not known: nothing is taken to be offloaded",)


@dataclass(frozen=True, kw_only=True)
class MemoryFigure:
    """Which bytes a run's memory column counts.

    Attributes:
        first_stage: whether of the first pipeline stage, rather than of the fullest.
        kind: ``allocated``, ``reserved`` or ``device``; None where the text doesn't say.
    """

    first_stage: bool = False
    kind: str | None = None
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def memory_figure_of(text: str) -> MemoryFigure:
    """What ``mem_kind`` names; of several words the one that comes first."""
    lowered, table = text.strip().lower(), document()["memory_kind"]
    if not lowered:
        return MemoryFigure()
    first = bool(re.search(table["first_stage"], lowered))
    places = [
        (match.start(), str(word.means))
        for word in words_of("memory_kind", "words")
        if (match := re.search(word.pattern, lowered))
    ]
    if re.search(table["either"], lowered):
        places = []
    if not places and not first and not re.search(table["silent"], lowered):
        return MemoryFigure(notes=(f"mem_kind {text!r} is not known: the framework's usual figure is taken",))
    return MemoryFigure(first_stage=first, kind=min(places)[1] if places else None)
