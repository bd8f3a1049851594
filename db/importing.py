"""``planner db import``: the rows of a file that ``planner db export`` wrote, into this store, all or none."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TextIO

from sqlalchemy import Connection, Table, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from costmodel.errors import InvalidInput
from db.contents import changed
from db.documents import check_row
from db.findings import Finding
from db.repositories.events import Events
from db.store import Store
from db.tables import SearchRow, StudyRow
from db.transfer import broken, check_header, read_line

_ROWS_AT_ONCE = 500
_FIRST_ROW = 2
_OF_CONTENT = ("models", "clusters", "calibrations", "scenarios", "plans")
# A search with a thousand plans has a line of some kilobytes.
_LONGEST_LINE = 1 << 24
_MOST_BYTES = 1 << 34
_Row = dict[str, Any]


@dataclass(kw_only=True)
class Imported:
    """What an import did: rows written and rows that were there already, by table."""

    written: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)


def lines_of(file: TextIO) -> Iterator[str]:
    """The lines of a file, none of which takes all memory.

    Raises:
        InvalidInput: a line is too long.
    """
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise broken(number, line[:80], f"a line has at most {_LONGEST_LINE} characters")
        yield line


def import_lines(store: Store, lines: Iterable[str], now: datetime) -> Imported:
    """Write what is not there yet.

    A search that is here already stays as it is, with its events. One that was alive when it was exported is queued.
    All lines are read and checked before the database is touched, so that a slow source keeps no one from writing.

    Raises:
        InvalidInput: a line is broken, or the file ends too early; nothing was written. The message names the line.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as kept:
        try:
            for line in _checked(lines):
                kept.write(line)
                if kept.tell() > _MOST_BYTES:
                    raise InvalidInput("in", "...", f"at most {_MOST_BYTES >> 30} GiB are expected")
            kept.seek(0)
        except OSError as error:
            raise InvalidInput("in", "...", f"it can't be kept until it is whole: {error.strerror}") from None
        with store.writing() as repos:
            return _Import(repos.connection, now).run(kept)


def _checked(lines: Iterable[str]) -> Iterator[str]:
    """The lines with rows, each of which holds what it should."""
    rows, number, promised = 0, 0, None
    for number, line in enumerate(lines, start=1):
        if number == 1:
            check_header(line)
            continue
        if promised is not None:
            raise broken(number, line[:80], "nothing is expected after the line with the number of rows")
        found = read_line(line, number)
        if isinstance(found, int):
            promised = found
            continue
        table, row = found
        try:
            check_row(table.name, row)
        except InvalidInput as error:
            raise broken(number, error.value, f"{error.field}: {error.expected}") from None
        rows += 1
        yield line if line.endswith("\n") else line + "\n"
    if number == 0:
        check_header("")
    if promised != rows:
        raise broken(number, f"{rows} rows", "the file was cut off: the last line must say how many rows there are")


class _Import:
    """State of one import."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        self._now = now
        self._done = Imported()
        self._table: Table | None = None
        self._waiting: list[tuple[int, _Row]] = []
        self._searches_here: set[str] = set()
        self._interrupted: list[str] = []
        self._new: dict[str, dict[str, int]] = {}

    def run(self, lines: Iterable[str]) -> Imported:
        """Write the rows of lines that were checked."""
        for number, line in enumerate(lines, start=_FIRST_ROW):
            found = read_line(line, number)
            assert not isinstance(found, int), "only lines with rows are kept"
            self._take(*found, number)
        self._write()
        self._check_contents()
        for id in self._interrupted:
            Events(self._connection).append(id, "queued", {}, self._now)
        return self._done

    def _take(self, table: Table, row: _Row, number: int) -> None:
        if table is not self._table or len(self._waiting) == _ROWS_AT_ONCE:
            self._write()
            self._table = table
        if table.name == SearchRow.__tablename__ and row["state"] == "running":
            row |= {"state": "queued", "owner": None, "lease_until": None, "started_at": None}
            self._interrupted.append(row["id"])
        if row.get("search_id") in self._searches_here and "search_id" in table.primary_key.columns:
            self._count(self._done.skipped, 1)
        else:
            self._waiting.append((number, row))

    def _write(self) -> None:
        table, waiting = self._table, self._waiting
        self._waiting = []
        if table is None or not waiting:
            return
        keys = list(table.primary_key.columns)
        make = postgresql.insert if self._connection.dialect.name == "postgresql" else sqlite.insert
        statement = make(table).on_conflict_do_nothing().returning(*keys)
        first, last = waiting[0][0], waiting[-1][0]
        try:
            written = {tuple(key) for key in self._connection.execute(statement, [row for _, row in waiting])}
        except IntegrityError as error:
            why = str(error.orig).splitlines()[0]
            raise broken(first, table.name, f"to line {last}: a row does not fit to the others: {why}") from None
        except InvalidInput as error:
            raise broken(first, error.value, f"to line {last}: {error.expected}") from None
        there = [(number, row) for number, row in waiting if tuple(row[key.name] for key in keys) not in written]
        if table.name in _OF_CONTENT:
            new = {row["id"]: number for number, row in waiting if (row["id"],) in written}
            self._new.setdefault(table.name, {}).update(new)
        self._count(self._done.written, len(written))
        self._count(self._done.skipped, len(there))
        if table.name == SearchRow.__tablename__:
            self._searches_here |= {row["id"] for _, row in there}
            self._interrupted = [id for id in self._interrupted if id not in self._searches_here]
        if table.name == StudyRow.__tablename__:
            self._check_studies(there)

    def _check_contents(self) -> None:
        """What is new has to be what its columns, and the id of a plan, say.

        A file of another planner is good for what that one wrote, whatever makes an id by our rules.
        """
        for found in self._findings():
            if not found.by_our_rules:
                raise broken(self._new[found.table][found.id], found.id, f"{found.table}: {found.what}")

    def _findings(self) -> Iterator[Finding]:
        for name in _OF_CONTENT:
            ids = list(self._new.get(name, ()))
            for start in range(0, len(ids), _ROWS_AT_ONCE):
                yield from changed(self._connection, name, ids[start : start + _ROWS_AT_ONCE])

    def _check_studies(self, there: list[tuple[int, _Row]]) -> None:
        """A study that was not written has to be here itself, not another one of its name."""
        ids = [row["id"] for _, row in there]
        here = set(self._connection.execute(select(StudyRow.id).where(StudyRow.id.in_(ids))).scalars())
        for number, row in there:
            if row["id"] not in here:
                raise broken(number, row["name"], "another study here has that name")

    def _count(self, counts: dict[str, int], rows: int) -> None:
        if rows and self._table is not None:
            counts[self._table.name] = counts.get(self._table.name, 0) + rows
