"""Text and JSON that came from outside: only what every database and every reader can hold."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any
from unicodedata import category

from pydantic import AfterValidator, Discriminator, StringConstraints, Tag

_DEEPEST = 24
_MOST_VALUES = 20_000
_LARGEST_INTEGER = 2**63 - 1
LONGEST_NAME = 200
LONGEST_LINE = 2_000
PRINTABLE = "it must be a line of printable characters"
# Control and format characters (those that turn text round, too), halves of pairs, ends of lines and paragraphs.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("it must not hold a NUL character")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("it must not hold half a surrogate pair")
    return text


def is_printable(text: str) -> bool:
    """Whether it is one line that reads the same wherever it is shown: no escapes, no marks that turn text round."""
    return text.isprintable() or not any(category(letter) in _UNSEEN for letter in text)


def _printable(text: str) -> str:
    if not is_printable(_storable(text)):
        raise ValueError(PRINTABLE)
    return text


def _storable_object(value: dict[str, Any]) -> dict[str, Any]:
    seen = 0
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        part, depth = waiting.pop()
        seen += 1
        if seen > _MOST_VALUES:
            raise ValueError(f"it must not hold more than {_MOST_VALUES} values")
        if depth > _DEEPEST:
            raise ValueError(f"it must not be nested deeper than {_DEEPEST}")
        if isinstance(part, dict):
            for key, inner in part.items():
                _storable(key)
                waiting.append((inner, depth + 1))
        elif isinstance(part, list):
            waiting.extend((inner, depth + 1) for inner in part)
        elif isinstance(part, str):
            _storable(part)
        elif isinstance(part, float) and not isfinite(part):
            raise ValueError("it must not hold NaN or Infinity")
        elif isinstance(part, int) and abs(part) > _LARGEST_INTEGER:
            raise ValueError("it must not hold whole numbers of more than 64 bits")
    return value


Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME), AfterValidator(_printable)]
Line = Annotated[str, StringConstraints(max_length=LONGEST_LINE), AfterValidator(_printable)]
Log = Annotated[str, StringConstraints(max_length=65_536), AfterValidator(_storable)]
Fields = Annotated[dict[str, Any], AfterValidator(_storable_object)]
Id = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]

GIVEN_AS = ("name", "object")


def _given_as(value: Any) -> str:
    return "object" if isinstance(value, dict) else "name"


# Told apart first, so that what is wrong with one of the two is said once and not as if it were meant as the other.
Given = Annotated[Annotated[Name, Tag("name")] | Annotated[Fields, Tag("object")], Discriminator(_given_as)]
