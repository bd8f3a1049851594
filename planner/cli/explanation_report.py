"""``suggest --explain`` for people: the six steps, and what the search's best plan does otherwise."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

_WIDTH = 120
_SAME = 5e-4
_GO_FOR = {
    "cost": "which go for the shortest step; the search minimises what a step costs",
    "fewest_devices": "which go for the shortest step; the search minimises the devices that are used",
}


def print_explanation(explanation: dict[str, Any]) -> None:
    """On stdout, below the table of plans."""
    sys.stdout.write("\n".join(_lines(explanation)) + "\n")


def _lines(explanation: dict[str, Any]) -> list[str]:
    objective = explanation.get("objective", "step_time")  # absent in answers that were stored before it was told
    go_for = f", {_GO_FOR[objective]}" if objective != "step_time" else ""
    lines = _beaten(explanation.get("runners_up", []))  # absent in answers that were stored before it was told
    lines += ["", *_wrapped("", f"How one would choose by hand (the primer's six steps{go_for}):")]
    for step in explanation["steps"]:
        lines += _wrapped(f"{step['number']}. ", f"{step['question']} {step['told']}")
    plan, difference = explanation["procedure_plan"], explanation["difference"]
    if plan is None:
        return [*lines, "These steps lead to no plan that fits."]
    if difference is None:
        return lines
    if not explanation["disagreements"]:
        return [*lines, "The search agrees: its best plan is that plan."]
    compared = _compared(objective, plan, difference)
    lines += _wrapped("", f"The search disagrees: its best plan {compared}. Changed one after the other:")
    for part in explanation["disagreements"]:
        lines += _wrapped("- ", part["told"])
    return lines


def _beaten(runners_up: list[dict[str, Any]]) -> list[str]:
    """Why each of the first plans beats the next."""
    lines = [""] if runners_up else []
    for pair in runners_up:
        lines += _wrapped("", f"Plan {pair['rank']} beats plan {pair['other']}: {pair['told']}.")
    return lines


def _compared(objective: str, plan: dict[str, Any], difference: dict[str, Any]) -> str:
    """The best plan against the procedure's, in the objective's unit first."""
    own, by = plan["prediction"]["step_time_s"], difference["step_time_s"]
    differs = abs(by) >= _SAME * own
    takes = f"takes {own + by:.4g} s, not {own:.4g} s" if differs else "is another one, and as fast"
    if objective == "step_time":
        return takes
    value, more = plan["value"], difference["value"]
    also = f" and {takes}" if differs else " and is as fast"
    if objective == "fewest_devices":
        count = f"{value + more:.0f} device{'s' if value + more != 1 else ''}"
        return (f"uses {count}, not {value:.0f}," if more else f"uses {count} too") + also
    costs = f"costs {value + more:.4g} a step, not {value:.4g}," if abs(more) >= _SAME * value else "costs as much"
    return costs + also


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
