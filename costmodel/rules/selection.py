"""Which rules a framework has at a version, and what they say about plans.

A framework joins by a module with its rules, a line in ``RULE_SETS`` and the name of that line in its catalog file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from costmodel.arrays import Bools
from costmodel.errors import UnknownName
from costmodel.rules.accelerate import ACCELERATE_RULES
from costmodel.rules.deepspeed import DEEPSPEED_RULES
from costmodel.rules.general import GENERAL_RULES
from costmodel.rules.llm_foundry import LLM_FOUNDRY_RULES
from costmodel.rules.maxtext import MAXTEXT_RULES
from costmodel.rules.megatron import MEGATRON_RULES
from costmodel.rules.nanotron import NANOTRON_RULES
from costmodel.rules.rule import Row, Rule, as_columns
from costmodel.rules.torchtitan import TORCHTITAN_RULES
from costmodel.scenario import Scenario
from costmodel.spec.framework import FrameworkSpec
from costmodel.table import PlanTable

RULE_SETS: Mapping[str, tuple[Rule, ...]] = {
    "accelerate": ACCELERATE_RULES,
    "deepspeed": DEEPSPEED_RULES,
    "llm-foundry": LLM_FOUNDRY_RULES,
    "maxtext": MAXTEXT_RULES,
    "megatron-core": MEGATRON_RULES,
    "nanotron": NANOTRON_RULES,
    "torchtitan": TORCHTITAN_RULES,
}


def rules_for(framework: FrameworkSpec) -> tuple[Rule, ...]:
    """The general rules and those that the framework has at its version, in a fixed order.

    A general rule comes with the framework's own source where its catalog file gives one.

    Raises:
        UnknownName: when the framework follows a rule set that is not known.
    """
    if framework.rules is not None and framework.rules not in RULE_SETS:
        raise UnknownName("framework rules", framework.rules, RULE_SETS)
    own = RULE_SETS[framework.rules] if framework.rules is not None else ()
    general = tuple(_as_asked_by(framework, rule) for rule in GENERAL_RULES)
    return tuple(rule for rule in (*general, *own) if rule.applies_to(framework))


def _as_asked_by(framework: FrameworkSpec, rule: Rule) -> Rule:
    source = framework.rule_sources.get(rule.name)
    return rule if source is None else replace(rule, source=source)


def broken(scenario: Scenario, row: Row) -> tuple[tuple[Rule, str], ...]:
    """The rules that one plan breaks, each with its reason; empty when the plan is legal.

    Options that the row leaves out are the usual ones.
    """
    row = PlanTable.of_rows([row]).row(0)
    columns = as_columns(row)
    failing = (rule for rule in rules_for(scenario.framework) if not rule.holds(scenario, columns).all())
    return tuple((rule, rule.reason(scenario, row)) for rule in failing)


def broken_by(scenario: Scenario, table: PlanTable) -> dict[str, Bools]:
    """For every rule that applies, the rows that break it."""
    shape = (len(table),)
    return {
        rule.name: np.broadcast_to(~rule.holds(scenario, table.columns), shape)
        for rule in rules_for(scenario.framework)
    }


def legal_mask(scenario: Scenario, table: PlanTable) -> Bools:
    """The rows that break no rule."""
    legal = np.ones(len(table), dtype=np.bool_)
    for rule in rules_for(scenario.framework):
        legal &= rule.holds(scenario, table.columns)
    return legal
