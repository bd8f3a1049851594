"""What sets a plan apart beside its mesh, schedule and recompute policy: its unusual options, in a few words each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.recompute_modules import selective_modules
from costmodel.rules.rule import as_columns
from costmodel.scenario import Scenario
from costmodel.spec.options import MODULES, OPTIONS
from costmodel.spec.plan import CP_COMM_TYPES
from costmodel.usual_options import usual_codes


def options_in_words(plan: Mapping[str, Any], scenario: Scenario) -> list[str]:
    """The options in which a plan is not as plans of its scenario are by themselves.

    Args:
        plan: the fields of a ``Plan``, legal or not.

    Returns:
        An option and its value, as a pin writes them: ``offload optimizer``, ``zero_plus qwz+hpz``. The modules of
        selective recompute are named where they are not those of the framework.
    """
    columns = as_columns({axis: plan[axis] for axis in ("tp", "cp", "zero_stage")})
    columns |= as_columns({"cp_comm_type": CP_COMM_TYPES.index(plan["cp_comm_type"])})
    usual = usual_codes(scenario, columns)
    found: list[str] = []
    for option in OPTIONS:
        code = option.encode(plan[option.name])
        if code != int(usual[option.name]) and not _follows(option.name, plan):
            found.append(f"{option.name} {option.write(code)}")
    modules = plan["recompute_modules"]
    if plan["recompute"] == "selective" and set(modules) != set(selective_modules(scenario)):
        found.append(f"{MODULES.name} {'+'.join(modules) or 'none'}")
    return found


def _follows(name: str, plan: Mapping[str, Any]) -> bool:
    """Without sequence parallelism no exchange of tensor parallelism has anything to overlap with."""
    return name == "tp_overlap" and not plan["sequence_parallel"]
