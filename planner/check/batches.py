"""Which global batches would suit a plan whose batch does not: the next one below and the next one above."""

from __future__ import annotations

from typing import Any

import numpy as np

from costmodel.plan_rows import encode
from costmodel.rules import rules_for
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from costmodel.stages import Layout

Json = dict[str, Any]

_ON_THE_BATCH = ("batch_divisible", "microbatches_fill_batch")
_FARTHEST_ROUNDS = 512


def batch_hint(plan: Plan, scenario: Scenario, broken: set[str]) -> Json | None:
    """``{field, values, why}`` for a plan that breaks rules on the batch or its micro-batches, and can be helped."""
    rules = [rule for rule in rules_for(scenario.framework) if "num_microbatches" in rule.axes]
    about = {rule.name for rule in rules} | set(_ON_THE_BATCH)
    unit, batch = plan.micro_batch_size * plan.dp, scenario.workload.global_batch_size
    if not broken & about or plan.tp * plan.cp * plan.pp * plan.dp > scenario.devices:
        return None
    rounds = batch // unit
    counts = np.arange(max(rounds - _FARTHEST_ROUNDS, 1), rounds + _FARTHEST_ROUNDS + 1, dtype=np.int64)
    row = encode(scenario, plan, Layout.EVEN)
    columns = {axis: np.full(len(counts), value, dtype=np.int64) for axis, value in row.items()}
    columns["num_microbatches"] = counts
    good = np.ones(len(counts), dtype=np.bool_)
    for rule in rules:
        if rule.name not in _ON_THE_BATCH:
            good &= rule.holds(scenario, columns)
    batches = [count * unit for count in counts[good].tolist()]
    below = [value for value in batches if value <= batch][-1:]
    above = [value for value in batches if value > batch][:1]
    values = [value for value in (*below, *above) if value != batch]
    if not values:
        return None
    why = f"multiples of micro_batch_size {plan.micro_batch_size} * dp {plan.dp} = {unit}"
    others = ", ".join(sorted(rule.name for rule in rules if rule.name not in _ON_THE_BATCH and rule.name in broken))
    return {
        "field": "global_batch_size",
        "values": values,
        "why": why + (f" that keep {others}" if others else ""),
    }
