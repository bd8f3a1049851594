"""Why nothing fits and what would, in lines for people: for ``suggest`` and ``check``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.wording import sharding

Json = dict[str, Any]

_GIB = 2**30
_MOST_NAMED = 4


def why_not(infeasibility: Json) -> Iterator[str]:
    """The conflict, and a line for each change that would make a plan fit, cheapest first."""
    first, *others = infeasibility["conflict"]
    yield f"no plan fits: {first['rule']}: {first['reason']}"
    if infeasibility.get("minimal", False):
        for part in others:
            yield f"together with {part['rule']}: {part['reason']}"
    elif others:
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        yield f"other rules stop plans too: {', '.join(part['rule'] for part in others[:_MOST_NAMED])}{more} (--json)"
    if infeasibility["relaxations"]:
        yield "what would fit, cheapest first:"
    for relaxation in infeasibility["relaxations"]:
        yield f"- {relaxation_line(relaxation)}"


def relaxation_line(relaxation: Json) -> str:
    """``--devices 24: use 24 devices instead of 16; 6.44 s a step (tp 4, pp 3, dp 2, ...); 8 more devices``."""
    flags = [*relaxation["flags"], *(f"without {flag}" for flag in relaxation["leave_out"])]
    plan, prediction = relaxation["plan"], relaxation["prediction"]
    axes = [f"{axis} {plan[axis]}" for axis in ("tp", "cp", "pp", "ep") if plan[axis] > 1] + [f"dp {plan['dp']}"]
    parts = [*axes, f"ZeRO {sharding(plan)}", f"recompute {plan['recompute']}", *relaxation["options"]]
    gib = prediction["memory"]["peak_bytes"] / _GIB
    gib_told = f"{gib:.1f} GiB" + (" (at risk)" if prediction["memory"].get("verdict") == "at_risk" else "")
    told = f"{relaxation['change']}; " if relaxation["flags"] else ""
    return (
        f"{' '.join(flags)}: {told}{prediction['step_time_s']:.4g} s a step, {gib_told} ({', '.join(parts)}); "
        f"{relaxation['cost']}"
    )
