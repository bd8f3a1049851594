"""From how people write an accelerator ("NVIDIA A100-SXM4-80GB", "gpu:h100:8", "v5litepod") to a catalog entry.

Never an error: unknown words fall back to a member of the family, then to what suggests itself, then to a default, and
the note says so. The words are data, in ``spellings.yaml``; here is only how text and words are compared.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from costmodel.catalog import folders
from costmodel.catalog.cluster_catalog import accelerator_names, load_accelerator
from costmodel.catalog.documents import read_mapping
from costmodel.spec.cluster import AcceleratorSpec

How = Literal["exact", "family", "default"]
Tokens = tuple[str, ...]

# A name is short; what comes after is prose.
_LONGEST = 300
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
class _Member:
    accelerator: str
    gb: tuple[float, ...]
    form: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class _Family:
    name: str
    members: tuple[_Member, ...]


@dataclass(frozen=True, kw_only=True)
class _Text:
    """A text in parts; ``sizes`` are those with a unit, in GB as printed."""

    tokens: Tokens
    sizes: tuple[float, ...]
    forms: frozenset[str]


class _Spellings:
    """The words of ``spellings.yaml`` as tokens, ready to be compared."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.default: str = data["default"]
        prefixes, suffixes = "|".join(data["prefixes"]), "|".join(data["suffixes"])
        self._glued = re.compile(rf"(?<![a-z0-9])({prefixes})(?=[a-z0-9])|(?<=[a-z0-9])({suffixes})(?![a-z])")
        self.families: dict[Tokens, _Family] = {}
        for row in data["families"]:
            members = tuple(
                _Member(accelerator=m["accelerator"], gb=tuple(m["gb"]), form=frozenset(m.get("form", ())))
                for m in row["members"]
            )
            family = _Family(name=row["name"], members=members)
            self.families.update((self.split(word), family) for word in row["words"])
        self.products = {self.split(word): name for word, name in data["products"].items()}
        self.hints = {self.split(word): name for word, name in data["hints"].items()}
        self.leading = {self.split(word): name for word, name in data["leading"].items()}
        self.vendors = {self.split(word): name for word, name in data["vendors"].items()}
        self.by_gb: dict[float, str] = data["by_gb"]
        self.forms = {self.split(word): form for form, words in data["forms"].items() for word in words}
        every_word = (*self.families, *self.products, *self.hints, *self.vendors, *self.forms)
        self.longest = max(len(word) for word in every_word)

    def split(self, text: str) -> Tokens:
        """Runs of letters and of digits; words that are often written together are parted: 8xTeslaV100."""
        text = re.sub(r"(?<![a-z0-9])(\d+)x(?=[a-z])", r"\1 times ", text.lower())
        text = re.sub(r"(?<![a-z0-9])x\s*(?=\d)", "times ", text)  # "MI250 x8" holds no MI250X
        for _ in range(2):  # nvidiateslav100
            text = self._glued.sub(lambda match: f" {match[0]} ", text)
        return tuple(re.findall(r"[a-z]+|\d+", text))

    def read(self, text: str) -> _Text:
        """A text in parts."""
        text = text[:_LONGEST].lower()
        text = re.sub(r"[:=]\s*\d{1,3}\s*$", "", text)  # a count: gpu:h100:8
        sizes = tuple(_sizes(text))
        # Without the unit, so that "40GB 300W" holds no GB300.
        tokens = self.split(re.sub(r"(?<=\d)\s*(gib|gb)(?!\d)", " gigabytes ", text))
        return _Text(tokens=tokens, sizes=sizes, forms=frozenset(_all(tokens, self.forms, self.longest)))


def _sizes(text: str) -> Iterable[float]:
    """Every size with a unit, in GB or GiB as printed."""
    for number, unit in re.findall(r"(?<![a-z\d.])(\d+(?:\.\d+)?)\s*((?:gib|gb|mib|mb)(?!\d)|g(?![a-z0-9]))", text):
        yield float(number) / 1024 if unit.startswith("m") else float(number)
    # "sxm480gb" is SXM4 with 80 GB.
    yield from (float(number) for number in re.findall(r"sxm\d(\d{2,3})\s*g", text))


def _first(tokens: Tokens, words: Container[Tokens], longest: int) -> tuple[int, Tokens] | None:
    """The word that comes first in the text, of those that start there the longest; with the place where it ends."""
    for start in range(len(tokens)):
        for end in range(min(len(tokens), start + longest), start, -1):
            if tokens[start:end] in words:
                return end, tokens[start:end]
    return None


def _all(tokens: Tokens, words: Mapping[Tokens, str], longest: int) -> Iterable[str]:
    """What the words of a text stand for; a longer word hides those inside it."""
    place = 0
    while (found := _first(tokens[place:], words, longest)) is not None:
        yield words[found[1]]
        place += found[0]


@lru_cache(maxsize=1)
def _spellings() -> _Spellings:
    return _Spellings(read_mapping(resources.files("costmodel.catalog") / "spellings.yaml", "spellings"))


# Cached by the user's directory as well, since its entries have names of their own.
@lru_cache(maxsize=4096)
def _recognised(text: str, user_dir: Path | None) -> Recognised:
    own = _own_names(user_dir).get(_compact(text))
    if own is not None:
        return Recognised(accelerator=load_accelerator(own), how="exact")
    words = _spellings()
    parts = words.read(text)
    shown = text.strip() if len(text.strip()) <= 60 else text.strip()[:57] + "..."
    product = _first(parts.tokens, words.products, words.longest)
    meant = words.products[product[1]] if product else None
    found = _first(parts.tokens, words.families, words.longest)
    if found is not None:
        end, word = found
        return _of_family(words.families[word], parts, end, meant, shown)
    if meant is not None:
        return _taken(meant, "exact", None, shown)
    hint = _first(parts.tokens, words.hints, words.longest)
    suggested = words.hints[hint[1]] if hint else words.leading.get(parts.tokens[:2])
    if suggested is not None:
        return _taken(suggested, "family", "names no model of the catalog", shown)
    vendor = _first(parts.tokens, words.vendors, words.longest)
    if vendor is not None:
        return _taken(words.vendors[vendor[1]], "default", "names no model of the catalog", shown)
    for size in parts.sizes:
        nearest = min(words.by_gb, key=lambda known: abs(known - size))
        if _near(nearest, size):
            return _taken(words.by_gb[nearest], "default", "names a size only", shown)
    return _taken(words.default, "default", "is not known" if shown else "is not given", shown)


def _of_family(family: _Family, parts: _Text, end: int, meant: str | None, shown: str) -> Recognised:
    """The member of a family that a text means, and what the text leaves open."""
    members: Sequence[_Member] = family.members
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
    # A chip is what is counted unless the text says that cores are.
    if "chip" in members[0].form or len({member.gb[0] for member in members}) == 1:
        return _taken(members[0].accelerator, "exact", None, shown)
    return _taken(members[0].accelerator, "family", f"doesn't say which {'form factor' if sized else 'memory'}", shown)


def _may_be_card(members: Sequence[_Member], size: float) -> bool:
    sizes = [member.gb[0] for member in members]
    return _SMALLEST_SHARE * min(sizes) <= size <= max(sizes)


def _resized(name: str, size: float, family: str, shown: str) -> Recognised:
    """A part that was sold with another memory: the text's size counts, as it decides what fits."""
    spec = load_accelerator(name)
    changes = {"memory_bytes": round(size * 2**30), "memory_note": f"{size:g} GB as the text says, taken as GiB"}
    note = f"accelerator {shown!r} has a memory that no {family} of the catalog has: {name} with {size:g} GB taken"
    return Recognised(accelerator=spec.model_copy(update=changes), how="family", note=note)


def _of_size(members: Sequence[_Member], size: float) -> Sequence[_Member] | None:
    """The members whose printed sizes come nearest, if near enough."""
    distance = {member.accelerator: min(abs(size - gb) for gb in member.gb) for member in members}
    least = min(distance.values())
    fitting = [member for member in members if distance[member.accelerator] == least]
    return fitting if least <= _SIZE_TOLERANCE * size else None


def _bare(tokens: Tokens, end: int, members: Sequence[_Member]) -> Iterable[float]:
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
    return {_compact(spelling): spec.name for spec in specs for spelling in (*spec.aliases, spec.name)}


def _compact(text: str) -> str:
    return "".join(re.findall(r"[a-z0-9]+", text.lower()))
