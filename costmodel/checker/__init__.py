"""An independent judge of one plan: every validity rule again, in plain scalars, from the frameworks' own checks.

It shares no code with ``costmodel.rules`` and is their oracle and the solver's: both have to agree with it by slug.
Beyond the rules it checks what only a finished plan has: layers that add up, and facts repeated from the scenario.
docs/rules.md gives the source of every slug.
"""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.checker.deepspeed import DEEPSPEED_PARTS
from costmodel.checker.findings import Judge, Violation
from costmodel.checker.general import GENERAL_PARTS
from costmodel.checker.maxtext import MAXTEXT_PARTS
from costmodel.checker.megatron import MEGATRON_PARTS
from costmodel.checker.others import ACCELERATE_PARTS, LLM_FOUNDRY_PARTS, NANOTRON_PARTS
from costmodel.checker.sources import source_of
from costmodel.checker.torchtitan import TORCHTITAN_PARTS
from costmodel.errors import UnknownName
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan

__all__ = ["Violation", "check_plan", "source_of"]

_OWN_PARTS: Mapping[str, tuple[Judge, ...]] = {
    "accelerate": ACCELERATE_PARTS,
    "deepspeed": DEEPSPEED_PARTS,
    "llm-foundry": LLM_FOUNDRY_PARTS,
    "maxtext": MAXTEXT_PARTS,
    "megatron-core": MEGATRON_PARTS,
    "nanotron": NANOTRON_PARTS,
    "torchtitan": TORCHTITAN_PARTS,
}


def check_plan(plan: Plan, scenario: Scenario) -> tuple[Violation, ...]:
    """Everything that is wrong with ``plan`` in ``scenario``; empty when it is legal. Memory is not judged here.

    Raises:
        UnknownName: when the scenario's framework follows a rule set that is not known.
    """
    rules = scenario.framework.rules
    if rules is not None and rules not in _OWN_PARTS:
        raise UnknownName("framework rules", rules, _OWN_PARTS)
    parts = (*GENERAL_PARTS, *(_OWN_PARTS[rules] if rules is not None else ()))
    return tuple(Violation(rule=rule, reason=reason) for part in parts for rule, reason in part(plan, scenario))
