"""``planner db export``: everything that is remembered, as it was at one moment, into a file."""

from __future__ import annotations

import os
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

    Returns:
        The number of rows.

    Raises:
        InvalidInput: it can't be written.
    """
    try:
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
    except OSError as error:
        raise InvalidInput("out", str(path), f"it can't be written: {error.strerror}") from None
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
