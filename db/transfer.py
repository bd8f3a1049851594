"""The file that carries a store from one database to another: JSON Lines, read and written a line at a time.

    {"format": "parallelism-planner", "version": 1, "revision": "0003", "planner": "0.1.0"}
    {"table": "models", "row": {"id": "...", "name": "...", ...}}
    ...
    {"rows": 1234}

The last line says how many rows there are, so that a file that was cut off is noticed. Keys of the API and of requests
stay where they are: they are secrets, or good for a day.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from importlib import metadata
from typing import Any, NoReturn

from sqlalchemy import JSON, Column, Table
from sqlalchemy.types import TypeDecorator

from costmodel.errors import InvalidInput, UnreadableFile
from db.column_types import Digest
from db.revisions import HEAD, REVISIONS
from db.tables import FINGERPRINT, ApiKeyRow, Base, IdempotencyKeyRow

FORMAT = "parallelism-planner"
VERSION = 1
_DISTRIBUTION = "parallelism-planner"
_LEFT_OUT = {ApiKeyRow.__tablename__, IdempotencyKeyRow.__tablename__}
TABLES: Mapping[str, Table] = {
    table.name: table for table in Base.metadata.sorted_tables if table.name not in _LEFT_OUT
}
"""By name, and so that what is pointed at comes before what points at it."""

_FIELD = "in"
_DIGEST = re.compile(rf"[0-9a-f]{{{FINGERPRINT}}}")
_LARGEST = 2**63
_YEARS = (1970, 9000)


def header() -> str:
    """The first line."""
    planner = metadata.version(_DISTRIBUTION)
    return json.dumps({"format": FORMAT, "version": VERSION, "revision": HEAD, "planner": planner})


def check_header(line: str) -> None:
    """Accept the first line of a file that this planner can read.

    Raises:
        InvalidInput: it is something else, or of a newer planner.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UnreadableFile(_FIELD, line[:80], "line 1: a file that planner db export wrote is expected")
    version, revision = found.get("version"), found.get("revision")
    if version != VERSION or revision not in REVISIONS:
        raise UnreadableFile(
            _FIELD,
            f"version {version}, revision {revision}",
            f"line 1: this planner reads version {VERSION} up to revision {HEAD}; a newer planner wrote the file",
        )


def row_line(table: Table, row: Mapping[str, Any]) -> str:
    """A line of the file."""
    values = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
    return json.dumps({"table": table.name, "row": values}, allow_nan=False, separators=(",", ":"))


def last_line(rows: int) -> str:
    """The last line."""
    return json.dumps({"rows": rows})


def read_line(text: str, number: int) -> tuple[Table, dict[str, Any]] | int:
    """A row with its table, or the number of rows, which ends the file.

    What documents hold is for ``db.documents`` to check.

    Raises:
        InvalidInput: the line is neither; the message names it.
    """
    try:
        found = json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError) as error:
        raise broken(number, text[:80], f"it must be JSON: {error}") from None
    if isinstance(found, dict) and set(found) == {"rows"} and isinstance(found["rows"], int):
        return found["rows"]
    if not isinstance(found, dict) or set(found) != {"table", "row"} or not isinstance(found["row"], dict):
        raise broken(number, text[:80], "a table and a row are expected")
    table = TABLES.get(str(found["table"]))
    if table is None:
        raise broken(number, found["table"], f"one of {', '.join(TABLES)} is expected")
    return table, _row(table, found["row"], number)


def broken(number: int, value: Any, expected: str) -> InvalidInput:
    """The error about a line."""
    return UnreadableFile(_FIELD, value, f"line {number}: {expected}")


def _row(table: Table, given: dict[str, Any], number: int) -> dict[str, Any]:
    for name in given:
        if name not in table.columns:
            raise broken(number, name, f"{table.name} has no such column")
    row: dict[str, Any] = {}
    for column in table.columns:
        if column.name in given:
            row[column.name] = _value(column, given[column.name], number)
        elif column.server_default is None and not column.nullable:
            raise broken(number, None, f"{table.name}.{column.name} is missing")
    return row


def _value(column: Column[Any], value: Any, number: int) -> Any:
    place = f"{column.table.name}.{column.name}"
    if value is None:
        if not column.nullable:
            raise broken(number, value, f"{place} must not be null")
        return None
    if isinstance(column.type, JSON):
        return value
    own = column.type
    kind = (own.impl_instance if isinstance(own, TypeDecorator) else own).python_type
    if kind is datetime:
        return _moment(value, place, number)
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise broken(number, value, f"{place} must be {kind.__name__}")
    if isinstance(own, Digest) and not _DIGEST.fullmatch(value):
        raise broken(number, value, f"{place} must be {FINGERPRINT} hex digits")
    return value


def _moment(value: Any, place: str, number: int) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    # Far ends of the calendar have no place in other time zones.
    if moment is None or moment.tzinfo is None or not _YEARS[0] <= moment.year <= _YEARS[1]:
        span = f"{_YEARS[0]} to {_YEARS[1]}"
        raise broken(number, value, f"{place} must be a moment of the years {span} with its time zone")
    return moment


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
