"""Which rules a framework has at a version, and what they say about plans.

A framework joins by a module with its rules and a line in ``_OWN_RULES``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodel.arrays import Bools
from costmodel.errors import UnknownName
from costmodel.rules.general import GENERAL_RULES
from costmodel.rules.megatron import MEGATRON_RULES
from costmodel.rules.rule import Row, Rule, as_columns
from costmodel.scenario import Scenario
from costmodel.spec.framework import FrameworkSpec
from costmodel.table import PlanTable

_OWN_RULES: Mapping[str, tuple[Rule, ...]] = {"megatron-core": MEGATRON_RULES}


def rules_for(framework: FrameworkSpec) -> tuple[Rule, ...]:
    """The general rules and those that the framework has at its version, in a fixed order.

    Raises:
        UnknownName: when no rules of the framework are known.
    """
    if framework.name not in _OWN_RULES:
        raise UnknownName("framework", framework.name, _OWN_RULES)
    return tuple(rule for rule in (*GENERAL_RULES, *_OWN_RULES[framework.name]) if rule.applies_to(framework))


def broken(scenario: Scenario, row: Row) -> tuple[tuple[Rule, str], ...]:
    """The rules that one plan breaks, each with its reason; empty when the plan is legal."""
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
