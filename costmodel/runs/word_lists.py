"""Lists of words that are data (catalog/words.yaml), and how a text is searched for them."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from typing import Any

from costmodel.catalog.documents import read_mapping
from costmodel.spec.base import Frozen
from costmodel.spec.validation import build


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


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    return read_mapping(resources.files("costmodel.catalog") / "words.yaml", "words")


@lru_cache(maxsize=32)
def words_of(*path: str) -> tuple[Word, ...]:
    rows: Any = document()
    for key in path:
        rows = rows[key]
    return tuple(build(Word, row, "words") for row in rows)


def found(text: str, *path: str) -> Word | None:
    """The first word of a list that is in the text, apart from what the text takes back."""
    said = without_negated(text.strip().lower())
    for word in words_of(*path):
        if re.search(word.pattern, said):
            return word
    return None


@lru_cache(maxsize=4096)
def without_negated(lowered: str) -> str:
    """The text less the words that a negation before or after them takes back."""
    for pattern in document()["negations"]:
        lowered = re.sub(pattern, " ", lowered)
    return lowered.strip()


def takes_back(text: str) -> bool:
    lowered = text.strip().lower()
    return without_negated(lowered) != lowered
