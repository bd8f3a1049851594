"""From how people write an accelerator ("NVIDIA A100-SXM4-80GB", "gpu:h100:8", "v5litepod") to a catalog entry.

Never an error: unknown words fall back to a member of the family, then to what suggests itself, then to a default, and
the note says so. The words are data, in ``spellings.yaml``; here is only how text and words are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from costmodel.catalog import folders
from costmodel.catalog.accelerator_catalog import accelerator_names, compact, load_accelerator
from costmodel.catalog.spelling_words import Family, Member, Text, Tokens, first, spelling_words
from costmodel.spec.cluster import AcceleratorSpec

How = Literal["exact", "family", "default"]

# How far a printed size may be from another for the same part (180 and 192 GB, 44.4 GiB of 48 GB).
_SIZE_TOLERANCE = 0.1
# A part may have been sold with less than the catalog's, down to this share; other sizes are of other memory.
_SMALLEST_SHARE = 0.4
_COUNTED = frozenset({"x", "gpu", "gpus", "node", "nodes", "card", "cards", "chip", "chips", "device", "devices", "w"})


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """An accelerator, and how sure its text made it.

    Attributes:
        how: exact when the text names this very entry; family when it names its kind; default when neither.
        note: one line that says what was taken and why; None when exact.
    """

    accelerator: AcceleratorSpec
    how: How
    note: str | None = None


def recognise_accelerator(text: str) -> Recognised:
    """The accelerator that a text means."""
    return _recognised(text, folders.user_dir())


@dataclass(frozen=True, kw_only=True)
class Named:
    """The model that a text speaks of, as people call it, and the catalog's entries that it may be.

    Attributes:
        outright: whether the text names the device itself, not an instance or a generation that has it.
    """

    name: str
    accelerators: tuple[str, ...]
    outright: bool


def named_accelerators(text: str) -> Named | None:
    """Which accelerators a text may mean; None where it names none."""
    words = spelling_words()
    taken = recognise_accelerator(text)
    found = first(words.read(text).tokens, words.families, words.longest)
    family = words.families[found[1]] if found else None
    if family is None and taken.how == "default":
        return None
    # A chip may be meant as its cores as well.
    is_open = taken.how != "exact" or (family is not None and "chip" in family.members[0].form)
    members = [member.accelerator for member in family.members] if family and is_open else []
    name = family.name if family else taken.accelerator.name
    accelerators = tuple(members) or (taken.accelerator.name,)
    return Named(name=name, accelerators=accelerators, outright=family is not None)


# Cached by the user's directory as well, since its entries have names of their own.
@lru_cache(maxsize=4096)
def _recognised(text: str, user_dir: Path | None) -> Recognised:
    own = _own_names(user_dir).get(compact(text))
    if own is not None:
        return Recognised(accelerator=load_accelerator(own), how="exact")
    words = spelling_words()
    parts = words.read(text)
    shown = text.strip() if len(text.strip()) <= 60 else text.strip()[:57] + "..."
    product = first(parts.tokens, words.products, words.longest)
    meant = words.products[product[1]] if product else None
    found = first(parts.tokens, words.families, words.longest)
    if found is not None:
        end, word = found
        taken = _of_family(words.families[word], parts, end, meant, shown)
        variant = words.variant_of(parts, end)
        return _unlike(taken, variant, shown) if variant else taken
    if meant is not None:
        return _taken(meant, "exact", None, shown)
    hint = first(parts.tokens, words.hints, words.longest)
    suggested = words.hints[hint[1]] if hint else words.leading.get(parts.tokens[:2])
    if suggested is not None:
        return _taken(suggested, "family", "names no model of the catalog", shown)
    # In the words' order: "NVIDIA" is said of everything that NVIDIA makes.
    vendor = next((name for word, name in words.vendors.items() if first(parts.tokens, {word}, len(word))), None)
    if vendor is not None:
        return _taken(vendor, "default", "names no model of the catalog", shown)
    for size in parts.sizes:
        nearest = min(words.by_gb, key=lambda known: abs(known - size))
        if _near(nearest, size):
            return _taken(words.by_gb[nearest], "default", "names a size only", shown)
    unknown = f"is {parts.variant} that isn't named" if parts.variant else "is not known"
    return _taken(words.default, "default", unknown if shown else "is not given", shown)


def _of_family(family: Family, parts: Text, end: int, meant: str | None, shown: str) -> Recognised:
    """The member of a family that a text means, and what the text leaves open."""
    members: Sequence[Member] = family.members
    stated = [*parts.sizes, *_bare(parts.tokens, end, members)]
    sized = next((fitting for size in stated if (fitting := _of_size(members, size))), None)
    other = None if sized else next((size for size in parts.sizes if _may_be_card(members, size)), None)
    members = sized or members
    formed = [member for member in members if member.form & parts.forms]
    members = formed or members
    if other is not None:
        return _resized(members[0].accelerator, other, family.name, shown)
    if parts.forms & {"pcie", "nvl", "core"} and not formed and all(member.form for member in members):
        return _taken(members[0].accelerator, "family", f"has a form that no such {family.name} has", shown)
    if meant in {member.accelerator for member in members}:
        return _taken(str(meant), "exact", None, shown)
    if parts.sizes and not sized:
        return _taken(
            members[0].accelerator, "family", f"speaks of a memory of {parts.sizes[0]:g} GB, which it hasn't", shown
        )
    # A chip is what is counted unless the text says that cores are.
    if "chip" in members[0].form or len({member.gb[0] for member in members}) == 1:
        return _taken(members[0].accelerator, "exact", None, shown)
    return _taken(members[0].accelerator, "family", f"doesn't say which {'form factor' if sized else 'memory'}", shown)


def _unlike(taken: Recognised, variant: str, shown: str) -> Recognised:
    """What was taken, for a text of another product with the same name."""
    note = f"accelerator {shown!r} is {variant}, which is not the same as what is taken: {taken.accelerator.name}"
    more = taken.note.replace(f"accelerator {shown!r}", "; the text", 1) if taken.note else ""
    return Recognised(accelerator=taken.accelerator, how="family", note=note + more)


def _may_be_card(members: Sequence[Member], size: float) -> bool:
    sizes = [member.gb[0] for member in members]
    return _SMALLEST_SHARE * min(sizes) <= size <= max(sizes)


def _resized(name: str, size: float, family: str, shown: str) -> Recognised:
    """A part that was sold with another memory: the text's size counts, as it decides what fits."""
    spec = load_accelerator(name)
    changes = {"memory_bytes": round(size * 2**30), "memory_note": f"{size:g} GB as the text says, taken as GiB"}
    note = f"accelerator {shown!r} has a memory that no {family} of the catalog has: {name} with {size:g} GB taken"
    return Recognised(accelerator=spec.model_copy(update=changes), how="family", note=note)


def _of_size(members: Sequence[Member], size: float) -> Sequence[Member] | None:
    """The members whose printed sizes come nearest, if near enough."""
    distance = {member.accelerator: min(abs(size - gb) for gb in member.gb) for member in members}
    least = min(distance.values())
    fitting = [member for member in members if distance[member.accelerator] == least]
    return fitting if least <= _SIZE_TOLERANCE * size else None


def _bare(tokens: Tokens, end: int, members: Sequence[Member]) -> Iterable[float]:
    """Numbers after the model that are a member's size without saying the unit: "A100-SXM4-80"."""
    if any("chip" in member.form for member in members):
        return  # TPU v3-16 is a slice of 16 cores
    sizes = {str(gb): gb for member in members for gb in member.gb}
    for place in range(end, len(tokens)):
        following = tokens[place + 1] if place + 1 < len(tokens) else ""
        if tokens[place] in sizes and tokens[place - 1] not in ("x", "times") and following not in _COUNTED:
            yield sizes[tokens[place]]


def _near(known: float, size: float) -> bool:
    return abs(known - size) <= _SIZE_TOLERANCE * size


def _taken(name: str, how: How, reason: str | None, shown: str) -> Recognised:
    note = f"accelerator {shown!r} {reason}: {name} taken" if reason else None
    return Recognised(accelerator=load_accelerator(name), how=how, note=note)


@lru_cache(maxsize=8)
def _own_names(user_dir: Path | None) -> Mapping[str, str]:
    """Names and aliases of the user's own accelerators, letters and digits only."""
    if user_dir is None:
        return {}
    entries = (folders.find("accelerator", name) for name in accelerator_names())
    specs = [load_accelerator(entry.name) for entry in entries if entry is not None and not entry.packaged]
    return {compact(spelling): spec.name for spec in specs for spelling in (*spec.aliases, spec.name)}
