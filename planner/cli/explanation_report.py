"""``suggest --explain`` for people: the six steps, and what the search's best plan does otherwise."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

_WIDTH = 120
_SAME = 5e-4


def print_explanation(explanation: dict[str, Any]) -> None:
    """On stdout, below the table of plans."""
    sys.stdout.write("\n".join(_lines(explanation)) + "\n")


def _lines(explanation: dict[str, Any]) -> list[str]:
    lines = ["", "How one would choose by hand (the primer's six steps):"]
    for step in explanation["steps"]:
        lines += _wrapped(f"{step['number']}. ", f"{step['question']} {step['told']}")
    plan, difference = explanation["procedure_plan"], explanation["difference"]
    if plan is None:
        return [*lines, "These steps lead to no plan that fits."]
    if difference is None:
        return lines
    if not explanation["disagreements"]:
        return [*lines, "The search agrees: its best plan is that plan."]
    own, by = plan["prediction"]["step_time_s"], difference["step_time_s"]
    takes = f"takes {own + by:.4g} s, not {own:.4g} s" if abs(by) >= _SAME * own else "is another one, and as fast"
    lines.append(f"The search disagrees: its best plan {takes}. Changed one after the other:")
    for part in explanation["disagreements"]:
        lines += _wrapped("- ", part["told"])
    return lines


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
