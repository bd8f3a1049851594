"""Column types that hold on both databases the same, and refuse what one of them would change or drop.

SQLite keeps NaN as NULL and any integer in any column; PostgreSQL has no text with a NUL character. What only one of
the two can hold is refused before either sees it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from sqlalchemy import BigInteger, DateTime, Double, Integer, String, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.types import TypeDecorator

from db.errors import Unstorable


class _Refused(Unstorable, DontWrapMixin):
    """Passes through SQLAlchemy as it is."""


def is_storable(text: str) -> bool:
    """Whether both databases hold this text: no NUL characters, no lone surrogates."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def to_json(value: Any) -> str:
    """JSON as it is stored: in the order of the keys, and without NaN and infinities, which JSON does not have."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise _Refused("document", value, f"it must be JSON: {error}") from None


class UtcDateTime(TypeDecorator[datetime]):
    """A moment with its time zone; SQLite, which keeps none, holds it in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a moment needs its time zone: {value}")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _checked_text(value: str | None) -> str | None:
    if value is not None and not is_storable(value):
        raise _Refused("text", value, "it must not contain NUL characters or lone surrogates")
    return value


class PlainText(TypeDecorator[str]):
    """Text of any length."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return _checked_text(value)


class Digest(TypeDecorator[str]):
    """An id or a digest in hex digits."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return _checked_text(value)


def _checked_whole(value: int | None, bits: int) -> int | None:
    if value is not None and not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise _Refused("number", value, f"it must fit into {bits} bits")
    return value


class Whole64(TypeDecorator[int]):
    """A whole number of 64 bits: bytes, devices, sequences."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        return _checked_whole(value, 64)


class Whole32(TypeDecorator[int]):
    """A whole number of 32 bits: the size of a mesh axis, a count of attempts."""

    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        return _checked_whole(value, 32)


class Finite(TypeDecorator[float]):
    """A number that is neither NaN nor infinite."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        if value is not None and not isfinite(value):
            raise _Refused("number", value, "it must be finite")
        return value
