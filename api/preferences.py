"""What a client would rather have: the ``Prefer`` header (RFC 7240)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[^",;]+|[",;]')
_ESCAPED = re.compile(r"\\(.)")
_MOST_LETTERS = 1_000


def preferred(lines: Iterable[str], name: str) -> str | None:
    """The value of a preference in all ``Prefer`` lines of a request: the first counts, as the standard says.

    Nothing here is ever an error: what can't be read is ignored, and so is a line longer than anybody needs.
    """
    for line in lines:
        for preference in _preferences(line if len(line) <= _MOST_LETTERS else ""):
            found, _, value = preference.partition("=")
            if found.strip().lower() == name:
                value = value.strip()
                return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
    return None


def wait_of(lines: Iterable[str], longest: float) -> float | None:
    """Seconds of ``wait``, no more than the longest; None when there is none, or no whole number of seconds."""
    value = preferred(lines, "wait")
    if value is None or not (value.isascii() and value.isdigit()):
        return None
    return min(float(value[:9]), longest)


def _preferences(line: str) -> Iterator[str]:
    """What stands between commas, without the parameters behind a semicolon; neither counts within quotes."""
    preference, is_parameter = "", False
    for piece in _PIECE.findall(line):
        if piece == ",":
            yield preference
            preference, is_parameter = "", False
        elif piece == ";":
            is_parameter = True
        elif not is_parameter:
            preference += piece
    yield preference
