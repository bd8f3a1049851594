"""What a validity rule is: a named condition on a plan's axes, checked on columns and explained for one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from costmodel.arrays import Bools, Ints
from costmodel.scenario import Scenario
from costmodel.spec.framework import FrameworkSpec

PlanColumns: TypeAlias = Mapping[str, Ints]
"""Axis -> values. Shapes only have to broadcast: columns of a table, a grid of axis values, or 0-d for one plan."""

OWN = "planner: "
"""Opens the source of a rule that no framework states but this planner follows."""
ARITHMETIC = "arithmetic"
"""The source of what no framework can do without, unless its catalog file says where it asks for it."""
CATALOG = "the framework's file in costmodel/catalog/frameworks"
"""The source of what a framework offers."""

HARDWARE = OWN + "the accelerator's file in costmodel/catalog/accelerators"
"""The source of what a device computes in."""

Row: TypeAlias = Mapping[str, int]
Holds: TypeAlias = Callable[[Scenario, PlanColumns], Bools]
Reason: TypeAlias = Callable[[Scenario, Row], str]
# A whole number, or a condition, on the scenario and some axes; a fact of the scenario alone stays a Python scalar.
Count: TypeAlias = Callable[[Scenario, PlanColumns], Any]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One reason for which a framework, or arithmetic, refuses a plan.

    Attributes:
        name: a stable slug; answers, pins and explanations refer to it.
        axes: the plan axes that it reads, and no others.
        holds: True where a plan passes.
        reason: one line with the numbers that break it; only asked for rows that do.
        source: file and line of the framework's own check, with the commit's date.
        with_feature, without_feature: a feature that a version has to have, or to lack, for the rule to apply.
        policy: whether the planner merely lists no such plans, while frameworks run them.
        refused_with_feature: a feature of the frameworks that refuse such plans all the same.
        asked_for: an option at whose usual value the rule holds, whatever the other axes are.
    """

    name: str
    axes: tuple[str, ...]
    holds: Holds
    reason: Reason
    source: str
    with_feature: str | None = None
    without_feature: str | None = None
    policy: bool = False
    refused_with_feature: str | None = None
    asked_for: str | None = None

    def applies_to(self, framework: FrameworkSpec) -> bool:
        """Whether this version of the framework has the rule."""
        if self.with_feature is not None and not framework.has(self.with_feature):
            return False
        return self.without_feature is None or not framework.has(self.without_feature)

    def is_policy_under(self, framework: FrameworkSpec) -> bool:
        """Whether what breaks the rule would run under this framework all the same."""
        return self.policy and not (self.refused_with_feature and framework.has(self.refused_with_feature))


def as_columns(row: Row) -> dict[str, Ints]:
    """One plan as columns of no dimension."""
    return {axis: np.asarray(value, dtype=np.int64) for axis, value in row.items()}


def always(_: Scenario, __: PlanColumns) -> bool:
    """The condition of a rule that applies to every plan."""
    return True


def divisible_rule(
    *,
    name: str,
    axes: tuple[str, ...],
    dividend: tuple[str, Count],
    divisor: tuple[str, Count],
    source: str,
    when: Count = always,
    with_feature: str | None = None,
    without_feature: str | None = None,
) -> Rule:
    """The commonest rule: where ``when`` is true, the divisor goes into the dividend. Both come with their names."""
    (dividend_name, dividend_of), (divisor_name, divisor_of) = dividend, divisor

    def holds(scenario: Scenario, columns: PlanColumns) -> Bools:
        remainder = np.remainder(dividend_of(scenario, columns), divisor_of(scenario, columns))
        return np.asarray(np.logical_or(np.logical_not(when(scenario, columns)), remainder == 0))

    def reason(scenario: Scenario, row: Row) -> str:
        columns = as_columns(row)
        value, by = int(dividend_of(scenario, columns)), int(divisor_of(scenario, columns))
        return f"{dividend_name} {value} % {divisor_name} {by} = {value % by}, must be 0"

    return Rule(
        name=name,
        axes=axes,
        holds=holds,
        reason=reason,
        source=source,
        with_feature=with_feature,
        without_feature=without_feature,
    )
