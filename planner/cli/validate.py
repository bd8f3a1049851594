"""``planner validate``: how right predictions are on runs that were measured."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from planner.cli.exits import tell, tell_problems


def validate(
    runs: Annotated[
        str | None, typer.Option(help="CSV file of measured runs; by default those that ship with the planner.")
    ] = None,
    calibration: Annotated[str | None, typer.Option(help="Catalog name, or a YAML or JSON file.")] = None,
    folds: Annotated[
        int | None, typer.Option(help="Refit the calibration on all of K folds of groups but one, and score that one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON on stdout.")] = False,
    config: Annotated[str | None, typer.Option(help="TOML file with defaults for these options.")] = None,
) -> None:
    """Print errors, ranking and memory figures of the predictions, beside two rules of thumb.

    Exit codes: 0 answered, 2 bad input, 5 failed.
    """
    from costmodel.runs import predictions
    from planner.cli.fidelity_report import none_judged, print_validation
    from planner.validation import validate

    validation = validate(predictions.predict_runs, runs=runs, calibration=calibration, folds=folds)
    tell_problems(validation.problems, about="runs: ")
    if not validation.judged:
        tell(f"planner: warning: runs: {none_judged(validation)}")
    if as_json:
        sys.stdout.write(json.dumps(validation.as_dict(), allow_nan=False) + "\n")
    else:
        print_validation(validation)
