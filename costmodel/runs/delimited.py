"""Text of separated cells into records, so that one broken row does not cost the rows after it.

A quote that is never closed would swallow the rest of the file. A record is therefore read strictly, and where that
fails its first line is taken alone and reading goes on with the next line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

SEPARATORS = (",", ";", "\t")


@dataclass(frozen=True, kw_only=True)
class Record:
    """The cells of one row.

    Attributes:
        line: the line of the file, the first being 1, on which it begins.
        problem: what is wrong with its quotes; empty when nothing is.
    """

    line: int
    cells: tuple[str, ...]
    problem: str = ""


def records(text: str, separator: str) -> Iterator[Record]:
    """Every record that is not an empty line."""
    lines = list(io.StringIO(text, newline=""))
    at = 0
    while at < len(lines):
        reader = csv.reader((lines[number] for number in range(at, len(lines))), delimiter=separator, strict=True)
        begin = at
        try:
            for cells in reader:
                if cells:
                    yield Record(line=at + 1, cells=tuple(cells))
                at = begin + reader.line_num
        except csv.Error as error:
            yield _alone(lines[at], at + 1, separator, str(error))
            at += 1


def _alone(line: str, number: int, separator: str, reason: str) -> Record:
    """The record that a line holds by itself, whatever is wrong with its quotes."""
    line = line.rstrip("\r\n")
    if line.count('"') % 2:
        problem = "a quote is opened and not closed; the row is read to the end of its line"
    else:
        problem = f"its quotes are out of place ({reason})"
    try:
        cells = next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # a cell beyond the limit of the csv module, which no column has use for
        cells, problem = [], f"a cell is longer than {csv.field_size_limit()} characters; the row is not used"
    return Record(line=number, cells=tuple(cells), problem=problem)
