"""The words by which accelerators are told, from ``spellings.yaml``, and how a text is parted to be compared."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from costmodel.catalog.documents import read_mapping

Tokens = tuple[str, ...]

# A name is short; what comes after is prose.
_LONGEST = 300
_NOWHERE = r"(?!)"


@dataclass(frozen=True, kw_only=True)
class Member:
    accelerator: str
    gb: tuple[float, ...]
    form: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Family:
    name: str
    members: tuple[Member, ...]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What makes another product of a model's name: a pattern of the whole text, or of the tokens after the name."""

    what: str
    text: re.Pattern[str]
    after: re.Pattern[str]


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text in parts; ``sizes`` are those with a unit, in GB as printed; ``variant`` as the whole text tells it."""

    tokens: Tokens
    sizes: tuple[float, ...]
    forms: frozenset[str]
    variant: str | None


class Spellings:
    """The words of ``spellings.yaml`` as tokens, ready to be compared."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.default: str = data["default"]
        prefixes, suffixes = "|".join(data["prefixes"]), "|".join(data["suffixes"])
        self._glued = re.compile(rf"(?<![a-z0-9])({prefixes})(?=[a-z0-9])|(?<=[a-z0-9])({suffixes})(?![a-z])")
        self.families: dict[Tokens, Family] = {}
        for row in data["families"]:
            members = tuple(
                Member(accelerator=m["accelerator"], gb=tuple(m["gb"]), form=frozenset(m.get("form", ())))
                for m in row["members"]
            )
            family = Family(name=row["name"], members=members)
            self.families.update((self.split(word), family) for word in row["words"])
        self.products = {self.split(word): name for word, name in data["products"].items()}
        self.hints = {self.split(word): name for word, name in data["hints"].items()}
        self.leading = {self.split(word): name for word, name in data["leading"].items()}
        self.vendors = {self.split(word): name for word, name in data["vendors"].items()}
        self.variants = [
            Variant(what=row["what"], text=re.compile(row.get("text", _NOWHERE)), after=re.compile(row["after"]))
            for row in data["variants"]
        ]
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

    def read(self, text: str) -> Text:
        """A text in parts."""
        text = text[:_LONGEST].lower()
        text = re.sub(r"[:=]\s*\d{1,3}\s*$", "", text)  # a count: gpu:h100:8
        variant = None
        for kind in self.variants:
            text, found = kind.text.subn(" ", text.replace("_", " "))
            variant = variant or (kind.what if found else None)
        sizes = tuple(_sizes(text))
        # Without the unit, so that "40GB 300W" holds no GB300.
        tokens = self.split(re.sub(r"(?<=\d)\s*(gib|gb)(?!\d)", " gigabytes ", text))
        forms = frozenset(_all(tokens, self.forms, self.longest))
        return Text(tokens=tokens, sizes=sizes, forms=forms, variant=variant)

    def variant_of(self, text: Text, end: int) -> str | None:
        """What makes the text's device another product than the model whose name ends there."""
        rest = " ".join(text.tokens[end:])
        return text.variant or next((kind.what for kind in self.variants if kind.after.match(rest)), None)


def _sizes(text: str) -> Iterable[float]:
    """Every size with a unit, in GB or GiB as printed."""
    for number, unit in re.findall(r"(?<![a-z\d.])(\d+(?:\.\d+)?)\s*((?:gib|gb|mib|mb)(?!\d)|g(?![a-z0-9]))", text):
        yield float(number) / 1024 if unit.startswith("m") else float(number)
    # "sxm480gb" is SXM4 with 80 GB.
    yield from (float(number) for number in re.findall(r"sxm\d(\d{2,3})\s*g", text))


def first(tokens: Tokens, words: Container[Tokens], longest: int) -> tuple[int, Tokens] | None:
    """The word that comes first in the text, of those that start there the longest; with the place where it ends."""
    for start in range(len(tokens)):
        for end in range(min(len(tokens), start + longest), start, -1):
            if tokens[start:end] in words:
                return end, tokens[start:end]
    return None


def _all(tokens: Tokens, words: Mapping[Tokens, str], longest: int) -> Iterable[str]:
    """What the words of a text stand for; a longer word hides those inside it."""
    place = 0
    while (found := first(tokens[place:], words, longest)) is not None:
        yield words[found[1]]
        place += found[0]


@lru_cache(maxsize=1)
def spelling_words() -> Spellings:
    return Spellings(read_mapping(resources.files("costmodel.catalog") / "spellings.yaml", "spellings"))
