"""PREDICTIONS.csv: one row per run, in order, written whole or not at all."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from costmodel.catalog.folders import expanded
from costmodel.errors import InvalidInput
from costmodel.runs.prediction import RunPrediction

COLUMNS = (
    "id",
    "feasible",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "peak_mem_gb",
    "provenance",
    "reason",
)


def predictions_text(predictions: Sequence[RunPrediction]) -> str:
    """The file's text: ``feasible`` 1, 0 or blank; six significant digits; what isn't predicted is blank."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(getattr(row, column)) for column in COLUMNS] for row in predictions)
    return stream.getvalue()


def write_predictions(path: str, predictions: Sequence[RunPrediction], field: str = "out") -> None:
    """Write the file beside its place and move it there, so that a reader never sees half of it.

    Raises:
        InvalidInput: the path names a directory, or a file in a directory that there isn't.
        OSError: the disk is full, or the directory may not be written to.
    """
    target = expanded(path, field).resolve()  # what a link points at is written, not the link
    if target.is_dir():
        raise InvalidInput(field, path, "it is a directory; name a file")
    if not target.parent.is_dir():
        raise InvalidInput(field, path, "its directory doesn't exist")
    if target.exists() and not target.is_file():  # a pipe or /dev/stdout: nothing to move into place
        target.write_text(predictions_text(predictions), encoding="utf-8")
        return
    _replace(target, predictions_text(predictions))


def _replace(target: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
