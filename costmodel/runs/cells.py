"""From the text of one cell to its value: how people and spreadsheets write numbers, flags and nothing at all."""

from __future__ import annotations

import math
import re
from typing import Any

from costmodel.runs.columns import Column

_BLANK_TEXT = frozenset({"", "-", "--", "n/a", "nan", "null"})
# In a column of text "none" is an answer (no recomputation); in a column of numbers it is the absence of one.
_BLANK_NUMBER = _BLANK_TEXT | {"none", "na", "?"}
_TRUE = frozenset({"1", "1.0", "true", "yes", "on", "y", "t"})
_FALSE = frozenset({"0", "0.0", "false", "no", "off", "n", "f"})

_SPACES_BETWEEN_DIGITS = re.compile(r"(?<=\d)[\s_'\u2019](?=\d{3}(\D|$))")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LONGEST_SHOWN = 40


class NotUsable(Exception):
    """The cell holds no value that could be true; the message says why."""


def value_of(text: str, column: Column, *, decimal_comma: bool) -> Any:
    """The value of a cell: None, or ``""`` for text, when it is blank.

    Args:
        decimal_comma: whether ``1,024`` is an amount slightly above one, as where semicolons separate the cells.

    Raises:
        NotUsable: the text means nothing in this column.
    """
    text = text.strip()
    lowered = text.lower()
    if column.kind == "text":
        return "" if lowered in _BLANK_TEXT else text
    if lowered in _BLANK_NUMBER:
        return None
    if column.kind == "flag":
        return _flag(text, lowered)
    number = _number(text, decimal_comma=decimal_comma and column.kind == "amount")
    if number is None:
        raise NotUsable(f"{shown(text)} is not {'a whole number' if column.kind == 'count' else 'a number'}")
    if not column.allows(number):
        raise NotUsable(f"{shown(text)} cannot be, {column.expected} is expected")
    if column.kind == "amount":
        return number
    if number != int(number):
        raise NotUsable(f"{shown(text)} is not a whole number")
    return int(number)


def shown(text: str) -> str:
    """The text in quotes, on one line, shortened when long."""
    quoted = repr(text)
    return quoted if len(quoted) <= _LONGEST_SHOWN else f"{quoted[: _LONGEST_SHOWN - 4]}...'"


def _flag(text: str, lowered: str) -> bool:
    if lowered in _TRUE or lowered in _FALSE:
        return lowered in _TRUE
    raise NotUsable(f"{shown(text)} is neither yes nor no (1 or 0)")


def _number(text: str, *, decimal_comma: bool) -> float | None:
    """The number, infinite when it is too large for one; None when the text is none."""
    if "," in text or not _NUMBER.fullmatch(text):
        text = _SPACES_BETWEEN_DIGITS.sub("", text)
        if _THOUSANDS.fullmatch(text) and not decimal_comma:
            text = text.replace(",", "")
        elif _DECIMAL_COMMA.fullmatch(text):
            text = text.replace(",", ".")
        if not _NUMBER.fullmatch(text):
            return math.inf if text.lower().lstrip("+-") in ("inf", "infinity") else None
    return float(text)
