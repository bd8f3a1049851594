"""Numbers as configurations have them, typed and bounded in one place: no reader reckons with any other."""

from __future__ import annotations

from typing import Any

MOST = 10**15
"""Beyond any count of a plan; products of a few such numbers can still be printed."""

# YAML has 5e8 as text.
_LONGEST = 20


def whole_number(value: Any) -> int | None:
    """A whole number, also as 5e8 or in quotes; None for anything else and beyond ``MOST``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        return value if abs(value) <= MOST else None
    try:
        found = float(value)
    except ValueError:
        return None
    return int(found) if found.is_integer() and abs(found) <= MOST else None


def plain_number(text: str) -> int | float | str:
    """A word of a command line as the number that it is, else as it stands; ``nan`` and ``inf`` are no numbers."""
    if len(text) > _LONGEST:
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = float(text)
    except ValueError:
        return text
    return found if abs(found) <= MOST else text


def factor(value: Any) -> float | None:
    """A number from 0 to ``MOST``, whole or not; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        return None
    return float(value)
