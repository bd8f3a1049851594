"""What a draft leaves open must not make its plan illegal: other values are tried where the usual ones break a rule.

The degrees tp, cp, pp and dp are not guessed at: what is left out there is 1, and dp what the devices come to.
Only fields that the broken rules look at are varied, and the plan with the fewest broken rules is taken; among equals
the one with the fewest unusual values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice, product
from typing import Any

from costmodel.checker import check_plan
from costmodel.rules import rules_for
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from costmodel.spec.plan_draft import PlanDraft
from planner.check.settling import Chosen
from planner.search.space import LARGEST_MICRO_BATCH, MOST_CHUNKS, divisors

Values = Mapping[str, Any]
Settle = Callable[[Mapping[str, Chosen]], Values]

_MOST_TRIED = 600
_LONGEST_PIPELINE = 1000
# Axes that follow from a field, so that a rule on the former is met by another value of the latter.
_DECIDED_BY = {
    "num_microbatches": ("micro_batch_size",),
    "dp_shard": ("zero_stage",),
    "dp_replicate": ("dp_shard", "zero_stage"),
    "tp": ("sequence_parallel",),
    "vpp": ("schedule",),
    "layout": ("vpp",),
}


def without_broken_rules(draft: PlanDraft, scenario: Scenario, settle: Settle) -> dict[str, Chosen]:
    """The unusual values to take so that as few rules as possible are broken; none when the usual ones do."""
    usual = settle({})
    if usual["pp"] > _LONGEST_PIPELINE:
        return {}
    options = _options(draft, scenario, usual)
    at_first = broken = _broken(usual, scenario)
    varied: list[str] = []
    best: dict[str, Any] = {}
    while broken:
        added = [name for name in _looked_at(at_first | broken, scenario) if name in options and name not in varied]
        if not added:
            break
        varied += added
        best, broken = _fewest_broken(varied, options, usual, scenario, settle)
    return {
        name: Chosen(value=value, avoids=_avoided(name, at_first - broken, scenario)) for name, value in best.items()
    }


def _fewest_broken(
    varied: list[str], options: Mapping[str, tuple[Any, ...]], usual: Values, scenario: Scenario, settle: Settle
) -> tuple[dict[str, Any], frozenset[str]]:
    """(values that differ from the usual, rules that stay broken)."""
    ranked = [tuple(enumerate(options[name])) for name in varied]
    tried = islice(product(*ranked), _MOST_TRIED)
    best: tuple[int, int, int] | None = None
    found: dict[str, Any] = {}
    broken: frozenset[str] = frozenset()
    for values in tried:
        other = {name: value for name, (_, value) in zip(varied, values, strict=True) if value != options[name][0]}
        now = _broken(settle({name: Chosen(value=value) for name, value in other.items()}), scenario)
        order = (len(now), len(other), sum(rank for rank, _ in values))
        if best is None or order < best:
            best, found, broken = order, other, now
        if not now and len(other) <= 1:
            break
    return found, broken


def _broken(values: Values, scenario: Scenario) -> frozenset[str]:
    return frozenset(violation.rule for violation in check_plan(Plan.model_construct(**values), scenario))


def _looked_at(rules: frozenset[str], scenario: Scenario) -> list[str]:
    """The fields that decide about these rules, in a fixed order."""
    axes = [axis for rule in rules_for(scenario.framework) if rule.name in rules for axis in rule.axes]
    decided = [name for axis in axes for name in (axis, *_DECIDED_BY.get(axis, ()))]
    return list(dict.fromkeys(decided))


def _avoided(name: str, rules: frozenset[str], scenario: Scenario) -> tuple[str, ...]:
    """Those of ``rules`` that ``name`` decides about; all of them where it only makes room for another field."""
    own = tuple(sorted(rule for rule in rules if name in _looked_at(frozenset([rule]), scenario)))
    return own or tuple(sorted(rules))


def _options(draft: PlanDraft, scenario: Scenario, usual: Values) -> dict[str, tuple[Any, ...]]:
    """For every open field that is a choice, the usual value and then the others, likeliest first."""
    framework, model = scenario.framework, scenario.model
    batch, tp, dp = scenario.workload.global_batch_size, usual["tp"], usual["dp"]
    found: dict[str, tuple[Any, ...]] = {}

    def choice(name: str, *values: Any) -> None:
        if getattr(draft, name) is None:
            found[name] = tuple(dict.fromkeys([usual[name], *values]))

    if model.moe is not None:
        choice("etp", tp, 1)
        choice("ep", *divisors(model.moe.num_experts))
    if usual["cp"] > 1:
        # By heads attention is cut under flags of their own (sp beside cp), which nobody means who says cp alone.
        choice("cp_comm_type", *(kind for kind in framework.cp_comm_types if kind != "a2a"))
    choice("zero_stage", *sorted(framework.zero_stages, key=lambda stage: (abs(stage - usual["zero_stage"]), -stage)))
    if draft.dp_replicate is None:
        choice("dp_shard", *(reversed(divisors(dp)) if dp <= scenario.devices else ()))
    if tp > 1:
        choice("sequence_parallel", True, False)
    if usual["pp"] > 1:
        choice("schedule", *framework.schedules)
        if draft.layers_per_chunk is None:
            choice("vpp", *range(1, min(MOST_CHUNKS, (model.num_layers + 2) // usual["pp"]) + 1))
    if draft.num_microbatches is None:
        choice("micro_batch_size", *(size for size in divisors(batch) if size <= LARGEST_MICRO_BATCH))
    return found
