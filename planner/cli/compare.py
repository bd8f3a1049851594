"""``planner compare``: predicted against measured, of a study or of plans."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from costmodel.errors import InvalidInput, Missing
from planner.cli import flags
from planner.cli.exits import Exit
from planner.cli.report import PipedConsole, figures_table
from planner.cli.tune_report import GIB, OUTCOMES
from planner.wording import plan_in_short

Json = dict[str, Any]


def compare(
    study: Annotated[str | None, typer.Option(help="The trials of the study of that name.")] = None,
    plan: Annotated[
        list[str] | None, typer.Option(help="What was measured of the stored plan of that id. Repeat it for more.")
    ] = None,
    as_json: flags.AsJson = False,
    config: flags.Config = None,
) -> None:
    """Print what was predicted of plans beside what was measured when they ran.

    Exit codes: 0 something was measured, 2 bad input, 3 nothing was, 5 failed.
    """
    if study is None and not plan:
        raise Missing("study", "say what to compare: --study NAME, or --plan ID once or several times")
    if study is not None and plan:
        raise InvalidInput("plan", plan[0], "either a study or plans are compared: leave one out")
    from db.store import Store
    from planner.stored.compared import plans_compared, study_compared

    with Store.open() as store, store.reading() as repos:
        found = study_compared(repos, study) if study is not None else plans_compared(repos, plan or [])
    if as_json:
        sys.stdout.write(json.dumps(found, allow_nan=False) + "\n")
    else:
        _print(found)
    measured = any(row["measurement_id"] is not None for row in found["rows"])
    raise typer.Exit(int(Exit.ANSWERED if measured else Exit.INFEASIBLE))


def _print(found: Json) -> None:
    names = ("step s", "measured", "ratio", "GiB", "measured", "ratio")
    table = figures_table(*("" if found["study"] is None else "trial", "plan", "outcome", *names), words=3)
    for row in found["rows"]:
        table.add_row(
            "" if row["trial"] is None else str(row["trial"]),
            plan_in_short(row["plan"]) if found["study"] is not None else row["plan_id"],
            OUTCOMES.get(row["status"], row["status"] or "not measured"),
            *_pair(row["predicted_step_time_s"], row["step_time_s"], ".4g", inside=row["inside_interval"]),
            *_pair(row["predicted_peak_bytes"] / GIB, _gib(row["peak_allocated_bytes"]), ".1f"),
        )
    PipedConsole.on_stdout().print(table)
    sys.stdout.write("\n".join(_summary(found)) + "\n")


def _pair(predicted: float, measured: float | None, digits: str, *, inside: bool | None = None) -> tuple[str, str, str]:
    if measured is None:
        return format(predicted, digits), "", ""
    # Outside of the predicted interval.
    mark = "!" if inside is False else ""
    return format(predicted, digits), format(measured, digits) + mark, f"{measured / predicted:.2f}"


def _gib(value: int | None) -> float | None:
    return None if value is None else value / GIB


def _summary(found: Json) -> list[str]:
    if not found["timed"]:
        return ["No time was measured."]
    times = f"{found['timed']} step time{'s' * (found['timed'] != 1)} measured"
    lines = [
        f"{times}: a median of {found['measured_over_predicted']:.2f} of the predicted, {found['inside_interval']} "
        "inside the predicted interval (others have a !)."
    ]
    if found["pairs_in_order"] is not None:
        lines.append(f"Pairs of plans in the predicted order: {found['pairs_in_order']:.0%}.")
    if found["memory_over_predicted"] is not None:
        lines.append(f"Memory allocated: a median of {found['memory_over_predicted']:.2f} of the predicted.")
    lines.append("planner calibrate --from-db --out FILE.json learns from all that the database has.")
    return lines
