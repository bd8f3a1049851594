"""What a client would rather have: the ``Accept`` header with its weights (RFC 9110, section 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence

HTML = "text/html"
JSON = "application/json"

_WEIGHT = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")

# Weight, how closely the range names the type, and the place in the header counted from the end.
_Rank = tuple[float, int, int]
_NOT_WANTED: _Rank = (0.0, 0, 0)


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The offered type of the greatest weight.

    Between equal weights the one that is named more closely, then the one that is named first, then the first of
    ``offered``; that one too where nothing is acceptable, since an answer is better than none.
    """
    ranges = _ranges_of(accept)
    if not ranges:
        return offered[0]
    return max(offered, key=lambda media_type: _rank_of(media_type, ranges))


def _rank_of(media_type: str, ranges: Sequence[tuple[str, float]]) -> _Rank:
    """By the range that names the type most closely, which may also rule out what ``*/*`` allows."""
    family = media_type.partition("/")[0]
    for closeness, name in ((2, media_type), (1, f"{family}/*"), (0, "*/*")):
        for place, (accepted, weight) in enumerate(ranges):
            if accepted == name:
                # What only a wildcard names has no place of its own among the others.
                return (weight, closeness, -place if closeness == 2 else 0) if weight else _NOT_WANTED
    return _NOT_WANTED


def _ranges_of(accept: str) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for part in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((text[2:].strip() for text in parameters if text.startswith("q=")), "1")
        if name and _WEIGHT.fullmatch(weight):
            found.append((name, float(weight)))
    return found
