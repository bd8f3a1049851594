"""Which rules a plan breaks, by the independent checker, with the names and sources that the rules give.

The checker judges any plan, whatever layers it has and however it contradicts itself. The vectorised rules know their
sources and tell the numbers in full; where both speak of the same rule, the rules' reason is told.

Three voices are kept apart: the framework, which refuses a plan; the planner, which sees that a plan contradicts itself
or its scenario; and the planner's policy, by which it merely lists no such plans. Only the first bears the framework's
name, and the last makes no plan illegal that can be laid out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from costmodel.checker import check_plan, source_of
from costmodel.plan_rows import encode, layout_of
from costmodel.rules import rules_for
from costmodel.rules.rule import CATALOG, OWN, Rule, as_columns
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from costmodel.stages import Layout
from planner.check.complete import Completion

_OWN_SOURCE = OWN + "a plan agrees with itself and with its scenario"
# Where the checker alone speaks for a framework: (rule set, rule) -> source.
_CHECKER_SOURCES = {
    ("megatron-core", "sequence_parallel_follows_tp"): "NVIDIA/Megatron-LM d98e8a64ddf3 (2026-08-22) "
    "megatron/core/model_parallel_config.py: sequence parallelism needs tp > 1; "
    "megatron/core/transformer/moe/moe_layer.py:636: experts with tp > 1 need it",
}
_ON_LAYERS = ("layers_add_up", "chunks_add_up", "recomputed_within_layers")
# Columns hold 64-bit numbers, and rules multiply axes; a plan that could be run is far below.
_LARGEST_PRODUCT = 2**62
_LONGEST_REASON = 300


@dataclass(frozen=True, kw_only=True)
class Broken:
    """One rule that a plan breaks.

    Attributes:
        framework, framework_version: who refuses the plan; None where it is the planner itself.
    """

    rule: str
    reason: str
    source: str
    framework: str | None
    framework_version: str | None


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What makes a plan illegal in its scenario, and what is merely no plan that the planner would list."""

    illegal: tuple[Broken, ...]
    policy: tuple[Broken, ...]


def judge(completion: Completion, scenario: Scenario) -> Judgement:
    """Every rule that the plan breaks."""
    plan = completion.plan
    found = dict[str, list[str]]()
    for violation in check_plan(plan, scenario):
        if completion.has_layers or violation.rule not in _ON_LAYERS:
            found.setdefault(violation.rule, []).append(violation.reason)
    told = _told_by_rules(plan, scenario) if found else {}
    known = {rule.name: rule for rule in rules_for(scenario.framework)}
    broken = tuple(
        _broken(rule, told.get(rule, "; ".join(reasons)), known.get(rule), scenario) for rule, reasons in found.items()
    )
    policies = {rule.name for rule in known.values() if rule.is_policy_under(scenario.framework)}
    policy = tuple(entry for entry in broken if entry.rule in policies)
    if not completion.has_layers:
        # What nothing can be laid over is no plan at all.
        return Judgement(illegal=broken, policy=())
    return Judgement(illegal=tuple(entry for entry in broken if entry not in policy), policy=policy)


def _broken(name: str, reason: str, rule: Rule | None, scenario: Scenario) -> Broken:
    framework = scenario.framework
    said = _CHECKER_SOURCES.get((framework.rules or "", name)) or source_of(framework.rules, name) or _OWN_SOURCE
    source = rule.source if rule else said
    # Without rules of its own, a framework is known by what its file offers; the rest is arithmetic.
    of_framework = not source.startswith(OWN) or (rule is not None and rule.policy != rule.is_policy_under(framework))
    refused = source == CATALOG or (framework.rules is not None and of_framework)
    return Broken(
        rule=name,
        reason=_shortened(reason),
        source=source,
        framework=framework.name if refused else None,
        framework_version=framework.version if refused else None,
    )


def _told_by_rules(plan: Plan, scenario: Scenario) -> dict[str, str]:
    """Reasons of the vectorised rules, as far as the plan can be a row of a table."""
    layout = layout_of(plan, scenario.model.num_layers)
    row = encode(scenario, plan, Layout.EVEN if layout is None else layout)
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
