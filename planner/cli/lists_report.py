"""``suggest --pareto`` and ``--shortlist`` for people: a table each, below the plans."""

from __future__ import annotations

from typing import Any

from planner.cli.report import PipedConsole, figures_table
from planner.wording import sharding

Json = dict[str, Any]

_GIB = 2**30


def print_lists(answer: Json) -> None:
    """On stdout, what there is of both."""
    console = PipedConsole.on_stdout()
    if answer.get("pareto"):
        console.print(
            "\nNo plan beats these in step time, devices and free memory (tenths of it) at once:", soft_wrap=True
        )
        table = figures_table("step s", "devices", "free GiB", "cost/step", "plan", words=0, words_last=True)
        for entry in answer["pareto"]:
            cost = entry["cost_per_step"]
            table.add_row(
                f"{entry['step_time_s']:.3f}",
                str(entry["devices_used"]),
                f"{entry['free_bytes'] / _GIB:.1f}",
                "" if cost is None else f"{cost:.4g}",
                in_short(entry),
            )
        console.print(table)
        if not answer["pareto_proven"]:
            console.print("Cut by the deadline: there may be more.", soft_wrap=True)
    if answer.get("shortlist"):
        _print_shortlist(console, answer["shortlist"])


def _print_shortlist(console: PipedConsole, found: Json) -> None:
    console.print(
        f"\nTo try, in this order: the fastest of {found['considered']} plans (up to {found['up_to'] - 1.0:.0%} slower "
        f"as predicted), or one within {found['indistinct']:.0%} of it, is among these with probability "
        f"{found['probability']:.2f}. By each line: the probability so far, and the mean loss of stopping there.",
        soft_wrap=True,
    )
    table = figures_table("try", "#", "step s", "probability", "loss", "plan", words=0, words_last=True)
    for turn, entry in enumerate(found["plans"], start=1):
        shown = (f"{entry['probability']:.2f}", f"{entry['loss']:.1%}", in_short(entry))
        table.add_row(str(turn), str(entry["rank"]), f"{entry['prediction']['step_time_s']:.3f}", *shown)
    console.print(table)


def in_short(entry: Json) -> str:
    """A plan in one line: ``tp 8, pp 4 x 2, dp 16, mbs 1, ZeRO 1, full recompute``."""
    plan = entry["plan"]
    parts = [f"{axis} {plan[axis]}" for axis in ("tp", "cp", "ep", "etp") if plan[axis] > 1]
    if plan["pp"] > 1:
        parts.append(f"pp {plan['pp']}" + (f" x {plan['vpp']}" if plan["vpp"] > 1 else ""))
    parts += [f"dp {plan['dp']}", f"mbs {plan['micro_batch_size']}", f"ZeRO {sharding(plan)}"]
    parts += [f"{plan['recompute']} recompute"] if plan["recompute"] != "none" else []
    return ", ".join([*parts, *entry.get("options", ())])
