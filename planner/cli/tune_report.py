"""A study as people read it: its trials, predicted against measured, and what came out."""

from __future__ import annotations

import sys
from typing import Any

from planner.cli.report import PipedConsole, figures_table

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
            OUTCOMES.get(trial["outcome"], "running"),
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


def plan_in_short(plan: Json) -> str:
    """The axes that tell plans apart, ``tp2 pp2 dp4 zero1 mbs1 full 3/8``; those of degree 1 are left out."""
    degrees = [f"{axis}{plan[axis]}" for axis in ("tp", "cp", "pp", "vpp", "ep", "dp") if plan[axis] > 1]
    words = [*(degrees or ["dp1"]), f"zero{plan['zero_stage']}", f"mbs{plan['micro_batch_size']}"]
    if plan["dp_replicate"] > 1 and plan["dp_shard"] > 1:
        words.append(f"shards{plan['dp_shard']}")
    if plan["pp"] > 1:
        words.append(plan["schedule"])
    if plan["recompute"] != "none":
        words.append(plan["recompute"])
    if plan["recompute"] == "full":
        words.append(f"{sum(plan['recomputed_layers_per_stage'])}/{sum(plan['layers_per_stage'])}")
    return " ".join(words)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.4g} s"
