"""A study as people read it: its trials, predicted against measured, and what came out."""

from __future__ import annotations

import sys
from typing import Any

from planner.cli.report import PipedConsole, figures_table
from planner.wording import plan_in_short

Json = dict[str, Any]

GIB = 2**30
OUTCOMES = {"ok": "ok", "stopped": "stopped early", "out_of_memory": "out of memory", "failed": "failed"}


def print_study(told: Json) -> None:
    """The report on stdout."""
    lines = [f"Study {told['name']}: {told['state']}{', ' if told['ended_because'] else ''}{told['ended_because']}", ""]
    sys.stdout.write("\n".join(lines) + "\n")
    if told["trials"]:
        _print_trials(told["trials"], told["best"])
    best = next((trial for trial in told["trials"] if trial["number"] == told["best"]), None)
    sys.stdout.write("\n" + _verdict(told, best) + "\n")


def _print_trials(trials: list[Json], best: int | None) -> None:
    table = figures_table(
        *("trial", "outcome", "plan", "predicted", "measured", "measured / predicted", "peak GiB"), words=3
    )
    for trial in trials:
        mark = "*" if trial["number"] == best else " "
        peak = trial["peak_allocated_bytes"]
        table.add_row(
            f"{trial['number']}{mark}",
            OUTCOMES.get(trial["outcome"], "running" if trial["worker"] else "put back"),
            plan_in_short(trial["plan"]),
            _seconds(trial["predicted_step_time_s"]),
            _seconds(trial["step_time_s"]),
            "" if trial["measured_over_predicted"] is None else f"{trial['measured_over_predicted']:.2f}",
            "" if peak is None else f"{peak / GIB:.1f}",
        )
    PipedConsole.on_stdout().print(table)
    for trial in trials:
        if trial["outcome"] in ("out_of_memory", "failed") and trial["reason"]:
            sys.stdout.write(f"trial {trial['number']}: {' '.join(trial['reason'].split())[:300]}\n")


def _verdict(told: Json, best: Json | None) -> str:
    if best is None:
        return "Nothing was measured."
    first = told["trials"][0]
    gain = ""
    if first["step_time_s"] and first["number"] != best["number"]:
        gain = f", {1.0 - best['step_time_s'] / first['step_time_s']:.1%} less than the first plan tried"
    return (
        f"Best: trial {best['number']}, {_seconds(best['step_time_s'])} a step{gain}; plan {best['plan_id']} "
        f"(planner export --id {best['plan_id']} --target ...)"
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.4g} s"
