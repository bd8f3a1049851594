"""Rules on when parameters are gathered and gradients reduced, and on what ZeRO++ quantises, under every framework."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules.rule import CATALOG, OWN, PlanColumns, Row, Rule
from costmodel.scenario import Scenario
from costmodel.spec.options import BY_NAME, RESHARD_AFTER

_MEANING = OWN + "only what is gathered layer by layer has it; a plan is listed once"


def _reshard_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    offered = scenario.framework.known_reshard_after()
    if offered is None:
        return np.asarray(True)
    return np.asarray(np.isin(columns["reshard_after"], [RESHARD_AFTER.index(value) for value in offered]))


def _reshard_known_reason(scenario: Scenario, row: Row) -> str:
    offered = ", ".join(scenario.framework.known_reshard_after() or ())
    named = f"{scenario.framework.title} {scenario.framework.version}"
    return f"reshard_after {RESHARD_AFTER[row['reshard_after']]}: {named} has {offered or 'no choice'}"


def zero_plus_bits(*parts: str) -> int:
    """The code of these parts of ZeRO++."""
    return BY_NAME["zero_plus"].encode(parts)


def zero_plus_words(row: Row) -> str:
    """The parts that a row has, as a flag names them."""
    return "+".join(BY_NAME["zero_plus"].decode(row["zero_plus"]))


def _zero_plus_known_reason(scenario: Scenario, row: Row) -> str:
    offered = "+".join(scenario.framework.zero_plus) or "no ZeRO++"
    return f"zero_plus {zero_plus_words(row)}: {scenario.framework.title} has {offered}"


def _zero_plus_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray(columns["zero_plus"] & ~zero_plus_bits(*scenario.framework.zero_plus) == 0)


SHARDING_RULES: tuple[Rule, ...] = (
    Rule(
        name="reshard_needs_zero_3",
        axes=("zero_stage", "reshard_after"),
        holds=lambda _, c: np.asarray((c["zero_stage"] == 3) | (c["reshard_after"] == 0)),
        reason=lambda _, row: (
            f"reshard_after {RESHARD_AFTER[row['reshard_after']]} with zero_stage {row['zero_stage']}: must be "
            f"{RESHARD_AFTER[0]} below stage 3, which alone gathers a layer twice"
        ),
        source=_MEANING,
        policy=True,
    ),
    Rule(
        name="prefetch_needs_zero_3",
        axes=("zero_stage", "fsdp_prefetch"),
        holds=lambda _, c: np.asarray((c["zero_stage"] == 3) | (c["fsdp_prefetch"] == 1)),
        reason=lambda _, row: (
            f"fsdp_prefetch {row['fsdp_prefetch']} with zero_stage {row['zero_stage']}: must be 1 below stage 3"
        ),
        source=_MEANING,
        policy=True,
    ),
    Rule(
        name="reshard_known",
        axes=("reshard_after",),
        holds=_reshard_known,
        reason=_reshard_known_reason,
        source=CATALOG,
    ),
    Rule(
        name="zero_plus_known",
        axes=("zero_plus",),
        holds=_zero_plus_known,
        reason=_zero_plus_known_reason,
        source=CATALOG,
    ),
    Rule(
        name="zero_plus_needs_zero_3",
        axes=("zero_stage", "zero_plus"),
        holds=lambda _, c: np.asarray((c["zero_stage"] == 3) | (c["zero_plus"] == 0)),
        reason=lambda _, row: f"zero_plus {zero_plus_words(row)} with zero_stage {row['zero_stage']}: must be 3",
        source="Wang 2023, arXiv 2306.10209: ZeRO++ is a set of optimizations of ZeRO-3",
    ),
)
