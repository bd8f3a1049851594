"""What all tables share: types of columns, names of constraints."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from db.column_types import Digest, Finite, PlainText, UtcDateTime, Whole64

FINGERPRINT = 32
"""Hex digits of an id that is a fingerprint: 128 bits."""
_NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """All tables of the planner."""

    metadata = MetaData(naming_convention=_NAMING)
    type_annotation_map = {  # noqa: RUF012  # SQLAlchemy reads a plain dict
        str: PlainText,
        int: Whole64,
        float: Finite,
        datetime: UtcDateTime,
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
    }


def fingerprint_key() -> Mapped[str]:
    """The primary key of rows that are written once: the fingerprint of their content."""
    return mapped_column(Digest(FINGERPRINT), primary_key=True)
