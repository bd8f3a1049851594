"""Which rules a plan breaks, by the independent checker, with the names and sources that the rules give.

The checker judges any plan, whatever layers it has and however it contradicts itself. The vectorised rules know their
sources and tell the numbers in full; where both speak of the same rule, the rules' reason is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from costmodel.checker import check_plan
from costmodel.plan_rows import encode, layout_of
from costmodel.rules import rules_for
from costmodel.rules.rule import as_columns
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from costmodel.stages import Layout
from planner.check.complete import Completion

_OWN_SOURCE = "planner: a plan agrees with itself and with its scenario"
_ON_LAYERS = ("layers_add_up", "chunks_add_up", "recomputed_within_layers")
# Columns hold 64-bit numbers, and rules multiply axes; a plan that could be run is far below.
_LARGEST_PRODUCT = 2**62
_LONGEST_REASON = 300


@dataclass(frozen=True, kw_only=True)
class Broken:
    """One rule that a plan breaks."""

    rule: str
    reason: str
    source: str


def judge(completion: Completion, scenario: Scenario) -> tuple[Broken, ...]:
    """Everything that makes the plan illegal in its scenario; empty when it is legal."""
    plan = completion.plan
    found = dict[str, list[str]]()
    for violation in check_plan(plan, scenario):
        if completion.has_layers or violation.rule not in _ON_LAYERS:
            found.setdefault(violation.rule, []).append(violation.reason)
    told = _told_by_rules(plan, scenario) if found else {}
    sources = {rule.name: rule.source for rule in rules_for(scenario.framework)}
    return tuple(
        Broken(rule=rule, reason=_shortened(told.get(rule, "; ".join(reasons))), source=sources.get(rule, _OWN_SOURCE))
        for rule, reasons in found.items()
    )


def _told_by_rules(plan: Plan, scenario: Scenario) -> dict[str, str]:
    """Reasons of the vectorised rules, as far as the plan can be a row of a table."""
    layout = layout_of(plan, scenario.model.num_layers)
    row = encode(plan, Layout.EVEN if layout is None else layout)
    if prod(max(value, 1) for value in row.values()) > _LARGEST_PRODUCT:
        return {}
    columns = as_columns(row)
    # Layers of one's own are not those of any layout, and a reason must not lay out a pipeline without end.
    rules = (rule for rule in rules_for(scenario.framework) if layout is not None or "layout" not in rule.axes)
    return {rule.name: rule.reason(scenario, row) for rule in rules if not rule.holds(scenario, columns).all()}


def _shortened(reason: str) -> str:
    """Without the middle of a long list of layers."""
    if len(reason) <= _LONGEST_REASON:
        return reason
    half = (_LONGEST_REASON - 3) // 2
    return f"{reason[:half]}...{reason[-half:]}"
