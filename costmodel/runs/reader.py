"""Reads RUNS.csv: every row that can be read is, and what is wrong with a row is said in the row.

Only a file that is no list of runs at all is an error. In a row, a value that cannot be true is taken as blank and
values that contradict each other are kept; both are reported with the line of the file and the column.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from costmodel.catalog.folders import expanded
from costmodel.errors import InvalidInput, UnreadableFile
from costmodel.runs.cells import NotUsable, shown, value_of
from costmodel.runs.columns import Run, columns
from costmodel.runs.contradictions import contradictions
from costmodel.runs.delimited import SEPARATORS, Record, records

# The largest published collection has a few megabytes; these leave room and keep a wrong file out of memory.
MAX_BYTES = 64 * 2**20
MAX_ROWS = 200_000

_GZIP_MAGIC = b"\x1f\x8b"


def read_runs(path: str | Path, field: str = "runs") -> tuple[Run, ...]:
    """The runs of a file with the columns of :class:`Run`, of which ``id`` alone has to be there.

    Args:
        path: a CSV file (comma, semicolon or tab), or one packed by gzip; at most 64 MiB unpacked, 200,000 rows.
        field: what the user calls the file, for errors.

    Raises:
        UnreadableFile: the file is absent, too large, or is not text in UTF-8.
        InvalidInput: it names no columns, no ``id`` among them, or one of ours twice.
    """
    return read_runs_of(expanded(str(path), field), field)


def read_runs_of(file: Traversable, field: str = "runs") -> tuple[Run, ...]:
    """As :func:`read_runs`, of a file that may lie in a package."""
    text = _text(file, field)
    header, separator = _header(text, str(file), field)
    where = _columns(header.cells, field)
    rows: list[Run] = []
    first_with: dict[str, int] = {}
    found = (record for record in records(text, separator) if record.line > header.line and _says_something(record))
    pending = next(found, None)
    while pending is not None:
        if len(rows) == MAX_ROWS:
            raise UnreadableFile(field, str(file), f"it has more than {MAX_ROWS} rows")
        record, pending = pending, next(found, None)
        cut = pending is None and not text.endswith(("\n", "\r"))
        row = _Row(record=record, width=len(header.cells), cut=cut, decimal_comma=separator == ";")
        run = row.run(where, first_with)
        first_with.setdefault(run.id, run.line)
        rows.append(run)
    return tuple(rows)


def problems_of(runs: Iterable[Run]) -> list[str]:
    """Everything that is wrong with the runs, in their order."""
    return [problem for run in runs for problem in run.problems]


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A record on its way to a run.

    Attributes:
        width: how many columns the file has.
        cut: whether the file ends in this row without ending the line.
    """

    record: Record
    width: int
    cut: bool
    decimal_comma: bool

    def run(self, where: dict[str, int], seen: dict[str, int]) -> Run:
        cells, said = self._cells()
        values: dict[str, Any] = {"id": ""}
        for name, index in where.items():
            if index >= len(cells) or not cells[index]:
                continue
            if name == "id":
                values[name] = cells[index].strip()
                continue
            try:
                values[name] = value_of(cells[index], columns()[name], decimal_comma=self.decimal_comma)
            except NotUsable as problem:
                said.append(f"{self._place(name)}: {problem}; taken as blank")
        name = values["id"]
        if not name:
            said.append(f"{self._place('id')}: it is blank; every run needs one")
        elif name in seen:
            said.append(f"{self._place('id')}: {shown(name)} is the id of row {seen[name]} too")
        run = Run(**values, line=self.record.line)
        said += [f"{self._place(column)}: {wrong}" for column, wrong in contradictions(run)]
        return Run(**values, line=self.record.line, problems=tuple(said)) if said else run

    def _cells(self) -> tuple[tuple[str, ...], list[str]]:
        """The cells that can be trusted, and what is wrong with the row as a whole."""
        cells = self.record.cells
        said = [f"row {self.record.line}: {self.record.problem}"] if self.record.problem else []
        if len(cells) > self.width:
            said.append(
                f"row {self.record.line}: it has {len(cells)} cells for {self.width} columns; the rest is ignored"
            )
        elif len(cells) < self.width:
            cut = "; the file seems to be cut here, and the last cell is taken as blank" if self.cut else ""
            said.append(f"row {self.record.line}: it has {len(cells)} cells for {self.width} columns{cut}")
            # What stands at the end of a cut file may be the first digits of a longer number.
            cells = cells[:-1] if self.cut and len(cells) > 1 else cells
        return cells, said

    def _place(self, column: str) -> str:
        return f"row {self.record.line}, column {column}"


def _header(text: str, name: str, field: str) -> tuple[Record, str]:
    """The row of names, and what separates its cells: whatever leaves an ``id`` and the most columns we know."""
    best: tuple[int, Record, str] | None = None
    for separator in SEPARATORS:
        record = next((record for record in records(text, separator) if any(record.cells)), None)
        if record is None:
            raise UnreadableFile(field, name, "it is empty; a row of column names is expected first, id among them")
        names = {_column_name(cell) for cell in record.cells}
        score = len(names & columns().keys()) if "id" in names else 0
        if best is None or score > best[0]:
            best = (score, record, separator)
    assert best is not None, "there are separators"
    if not best[0]:
        found = best[1].cells[0][:200]
        raise InvalidInput(field, found, f"the first row of {name} has to name the columns, and one of them is id")
    return best[1], best[2]


def _columns(header: Sequence[str], field: str) -> dict[str, int]:
    """Where each of our columns is."""
    where: dict[str, int] = {}
    for index, cell in enumerate(header):
        name = _column_name(cell)
        if name not in columns():
            continue
        if name in where:
            raise InvalidInput(field, cell, f"column {name} is there twice; one of them has to go")
        where[name] = index
    return where


def _says_something(record: Record) -> bool:
    """Spreadsheets leave rows of empty cells behind."""
    return any(record.cells) or bool(record.problem)


def _column_name(cell: str) -> str:
    return "_".join(cell.strip().lower().replace("-", " ").split())


def _text(file: Traversable, field: str) -> str:
    try:
        content = _content(file, field)
    except FileNotFoundError:
        raise UnreadableFile(field, str(file), "there is no such file") from None
    except (OSError, EOFError, zlib.error, ValueError) as error:  # ValueError: a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise UnreadableFile(field, str(file), f"it can't be read: {reason}") from None
    if b"\0" in content:
        raise UnreadableFile(field, str(file), "text in UTF-8 is expected, and this is neither that nor CSV")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(field, str(file), f"text in UTF-8 is expected (byte {error.start} isn't)") from None


def _content(file: Traversable, field: str) -> bytes:
    with file.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if content.startswith(_GZIP_MAGIC):
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            content = packed.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise UnreadableFile(field, str(file), f"it is larger than {MAX_BYTES // 2**20} MiB")
    return content
