"""Named validity rules per framework and version, on columns of plans.

``costmodel.checker`` judges a single plan by the same rules without this code.
"""

from costmodel.rules.rule import PlanColumns, Rule
from costmodel.rules.selection import broken, broken_by, legal_mask, rules_for

__all__ = ["PlanColumns", "Rule", "broken", "broken_by", "legal_mask", "rules_for"]
