"""Every rule, and what else meshes are counted under, has its sentence."""

from __future__ import annotations

from costmodel.rules.general import GENERAL_RULES
from costmodel.rules.selection import RULE_SETS
from planner.meanings import _meanings, meaning_of
from planner.search.changes import DEVICES
from planner.search.eliminate import MEMORY, PINS


def test_every_rule_has_a_sentence_and_no_sentence_is_of_none() -> None:
    names = {rule.name for rules in (GENERAL_RULES, *RULE_SETS.values()) for rule in rules}
    # These two are about what no search lists, and the checker's alone.
    beyond = {"tp_overlap_needs_sequence_parallel", "ep_overlap_without_moe_recompute"}
    assert set(_meanings()) == names | beyond | {MEMORY, PINS, DEVICES}
    assert all(text.endswith(".") and "\n" not in text for text in _meanings().values())


def test_what_is_no_rule_has_none() -> None:
    assert meaning_of("pin tp=8") == ""
