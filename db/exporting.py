"""``planner db export``: everything that is remembered, as it was at one moment, into a file."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from sqlalchemy import select

from costmodel.errors import InvalidInput
from db.store import Store
from db.transfer import TABLES, header, last_line, row_line

_ROWS_AT_ONCE = 500


def export(store: Store, out: TextIO) -> int:
    """Write the lines of the file.

    Returns:
        The number of rows.
    """
    rows = 0
    for line in _lines(store):
        out.write(line + "\n")
        rows += 1
    # Header and last line are no rows.
    return rows - 2


def export_to_file(store: Store, path: Path) -> int:
    """Write the file, which is there as a whole or not at all. Only its owner may read it.

    A link stays one: the file that it names is written. Pipes and character devices are written into.

    Returns:
        The number of rows.

    Raises:
        InvalidInput: it can't be written.
    """
    try:
        if _is_written_into(path):
            with path.open("w", encoding="utf-8", newline="\n") as out:
                return export(store, out)
        return _replace(store, Path(os.path.realpath(path)))
    except OSError as error:
        raise InvalidInput("out", str(path), f"it can't be written: {error.strerror}") from None


def _is_written_into(path: Path) -> bool:
    """Whether a path names something that a new file must not take the place of."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode) or stat.S_ISBLK(mode):
        raise InvalidInput("out", str(path), f"a file is expected, not a {'folder' if stat.S_ISDIR(mode) else 'disk'}")
    return not stat.S_ISREG(mode)


def _replace(store: Store, path: Path) -> int:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as out:
            rows = export(store, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return rows


def _lines(store: Store) -> Iterator[str]:
    rows = 0
    yield header()
    with store.reading() as repos:
        for table in TABLES.values():
            query = select(table).order_by(*table.primary_key.columns)
            found = repos.connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query)
            for row in found.mappings():
                rows += 1
                yield row_line(table, {str(name): value for name, value in row.items()})
    yield last_line(rows)
