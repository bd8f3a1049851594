"""PREDICTIONS.csv: one row per run, in order, written whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from costmodel.runs.prediction import RunPrediction
from costmodel.whole_files import write_whole

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
    """Write the file, whole or not at all.

    Raises:
        InvalidInput: the path names a directory, or a file in a directory that there isn't.
        OSError: the disk is full, or the directory may not be written to.
    """
    write_whole(path, predictions_text(predictions), field)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
