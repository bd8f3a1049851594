"""Cursors: opaque to clients, the place after the last item to us."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from api.problems import unusable
from costmodel.fingerprint import digest

Place = tuple[Any, str]
Filters = Mapping[str, Any]
NEWEST_FIRST = "-created_at"
_NONE: Filters = {}
_ID = re.compile(r"[0-9a-f]{32}")


def cursor_of(place: Place | None, sort: str, filters: Filters = _NONE) -> str | None:
    """A cursor for the next page; None at the end. It belongs to one way of sorting and filtering."""
    if place is None:
        return None
    value, identifier = place
    shown = value.isoformat() if isinstance(value, datetime) else value
    text = json.dumps([sort, _fingerprint(filters), shown, identifier])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(cursor: str | None, sort: str, filters: Filters = _NONE, *, by_time: bool) -> Place | None:
    """The place that a cursor of ours stands for.

    Raises:
        ProblemRaised: it is none of ours, or belongs to another way of sorting or filtering.
    """
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        own_sort, own_filters, value, identifier = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        read: Callable[[Any], Any] = _moment if by_time else _number
        place = read(value), _identifier(identifier)
    except (binascii.Error, ValueError, TypeError, OverflowError):
        raise unusable("cursor", "it is not a `next` that this server gave") from None
    if own_sort != sort:
        raise unusable("cursor", f"it belongs to a list sorted by {str(own_sort)[:40]!r}, this one is by {sort!r}")
    if own_filters != _fingerprint(filters):
        raise unusable("cursor", "it belongs to a list with other filters")
    return place


def _fingerprint(filters: Filters) -> str:
    chosen = {name: value for name, value in filters.items() if value is not None}
    return digest(chosen)[:8] if chosen else ""


def _identifier(value: Any) -> str:
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise ValueError("an id is expected")
    return value


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("a time zone is expected")
    return moment.astimezone(UTC)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 2**63 - 1:
        raise ValueError("a number is expected")
    return value
