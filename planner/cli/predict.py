"""``planner predict``: what every run of a file would take, by the contract of PREDICTIONS.csv."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli.exits import tell

_SHOWN = 10


def predict(
    runs: Annotated[str, typer.Option(help="CSV file with the columns of the measured runs; `id` is enough.")],
    out: Annotated[str, typer.Option(help="The CSV file to write; - for stdout.")],
    calibration: Annotated[str | None, typer.Option(help="Catalog name, or a calibration file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A summary as JSON on stdout.")] = False,
    config: Annotated[str | None, typer.Option(help="TOML file with defaults for these options.")] = None,
) -> None:
    """Predict step time, memory and feasibility of every run: one row in, one row out, in order.

    Exit codes: 0 written, 2 bad input, 5 failed.
    """
    from costmodel.calibration.calibration import DEFAULT_CALIBRATION, load_calibration
    from costmodel.errors import InvalidInput
    from costmodel.runs.predictions import predict_runs
    from costmodel.runs.predictions_file import predictions_text, write_predictions
    from costmodel.runs.reader import read_runs

    to_stdout = out == "-"
    if not to_stdout and _same_file(runs, out):
        raise InvalidInput("out", out, "it is the runs file; name another one")
    if to_stdout and as_json:
        raise InvalidInput("out", out, "--json takes stdout for the summary; name a file")
    rows = read_runs(runs)
    predictions = predict_runs(rows, load_calibration(calibration or DEFAULT_CALIBRATION))
    if to_stdout:
        sys.stdout.write(predictions_text(predictions))
    else:
        write_predictions(out, predictions)
    problems = [problem for row in rows for problem in row.problems]
    for problem in problems[:_SHOWN]:
        tell(f"planner: warning: {problem}")
    if len(problems) > _SHOWN:
        tell(f"planner: warning: {len(problems) - _SHOWN} more; every row's own stand in its reason")
    without = [prediction.reason for prediction in predictions if prediction.step_time_s is None]
    summary: dict[str, Any] = {
        "rows": len(predictions),
        "predicted": len(predictions) - len(without),
        "infeasible": sum(prediction.feasible is False for prediction in predictions),
        "problems": len(problems),
        "unpredicted": dict(_counted(without)),
        "out": out,
    }
    if as_json:
        sys.stdout.write(json.dumps(summary) + "\n")
        return
    tell(
        f"{summary['predicted']} of {summary['rows']} rows predicted, {summary['infeasible']} of them do not fit"
        + ("" if to_stdout else f"; written to {out}")
    )
    for reason, count in _counted(without)[:_SHOWN]:
        tell(f"  {count} x {reason}")


def _same_file(first: str, second: str) -> bool:
    try:
        return Path(first).expanduser().samefile(Path(second).expanduser())
    except (OSError, RuntimeError):
        return False


def _counted(reasons: Sequence[str]) -> list[tuple[str, int]]:
    return Counter(reasons).most_common()
