"""What a legal plan takes and needs, exactly where the cost model has it, between bounds where it does not.

Some modules can be named for recompute whose tensors no term counts: such plans get bounds, and no price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.arrays import Num, num
from costmodel.calibration.ranges import Beyond
from costmodel.certainty import beyond_of
from costmodel.facts import Facts
from costmodel.layers import total
from costmodel.plan_rows import encode, layout_of, recomputes_some, stages_of_plan
from costmodel.predict import predict_stages
from costmodel.recompute_modules import NOT_PRICED
from costmodel.scenario import Scenario
from costmodel.spec.plan import RECOMPUTES, Offload, Plan
from costmodel.stages import Layout
from costmodel.table import PlanTable, StageTable
from planner.search.answer import in_words

Json = dict[str, Any]

_NONE, _FULL = RECOMPUTES.index("none"), RECOMPUTES.index("full")


# The memory terms of which anything may leave the device.
_LEAVES: Mapping[Offload, tuple[str, ...]] = {
    "optimizer": ("optimizer", "gradients"),
    "activations": ("activations",),
    "parameters": ("parameters", "gradients", "optimizer"),
}


@dataclass(frozen=True, kw_only=True)
class Pricing:
    """What is known of one plan.

    Attributes:
        prediction: in the words of the answer; None for a plan that the cost model can't price.
        memory: term -> bytes per stage, of the price or else of the upper bound.
        least_bytes, most_bytes: per stage; equal when priced.
        step_time_s: at least and at most; None where nothing bounds it.
        host_bytes: bytes in the memory of one host; None where they are not known.
        beyond: in what the case lies outside of the calibrated range.
        open: why there is no price, in words; empty when there is one.
    """

    prediction: Json | None
    memory: Mapping[str, Num]
    least_bytes: Num
    most_bytes: Num
    step_time_s: tuple[float | None, float | None]
    beyond: tuple[Beyond, ...]
    open: tuple[str, ...] = ()
    host_bytes: float | None = None


def row_of_plan(scenario: Scenario, plan: Plan) -> dict[str, int]:
    """The plan as a row; layers of its own are no part of a row, their place holds the plainest layout."""
    layout = layout_of(plan, scenario.model.num_layers)
    return encode(scenario, plan, Layout.EVEN if layout is None else layout)


def price(scenario: Scenario, plan: Plan) -> Pricing:
    """Price a legal plan, or bound it."""
    # Whether sequences are cut along with tp is a fact of the whole run to the cost model; every searched plan does.
    scenario = scenario.model_copy(update={"sequence_parallel": plan.sequence_parallel or plan.tp == 1})
    facts = Facts.of(scenario)
    row, stages = row_of_plan(scenario, plan), stages_of_plan(scenario, plan)
    why_not = _not_priced(scenario, plan)
    if why_not:
        return _bounded(scenario, facts, plan, row, stages, why_not)
    full = predict_stages(facts, PlanTable.of_rows([row]), stages)
    share = sum(plan.recomputed_layers_per_stage) / max(sum(plan.layers_per_stage), 1)
    (prediction,) = in_words(scenario, PlanTable.of_rows([row]), full, num([share]))
    memory = {name: term[0] for name, term in full.memory.items()}
    step, bytes_ = float(full.step_time_s[0]), total(memory)
    return Pricing(
        prediction=prediction,
        memory=memory,
        least_bytes=bytes_,
        most_bytes=bytes_,
        step_time_s=(step, step),
        beyond=beyond_of(scenario, row),
        host_bytes=float(full.host_bytes[0]),
    )


def recomputes_like_no_other(scenario: Scenario, plan: Plan) -> bool:
    """Whether the plan recomputes as no plan of the search does: some layers, or modules that have no price."""
    return recomputes_some(plan) or bool(_without_price(plan))


def _without_price(plan: Plan) -> tuple[str, ...]:
    """Recomputed modules that no term counts."""
    return tuple(module for module in plan.recompute_modules if module in NOT_PRICED)


def _not_priced(scenario: Scenario, plan: Plan) -> tuple[str, ...]:
    found: list[str] = []
    if plan.offload != "none" and scenario.cluster.host_bandwidth_bytes_per_s is None:
        found.append(f"offload {plan.offload} on a cluster whose host link is unknown")
    modules = _without_price(plan)
    if modules:
        found.append(f"selective recompute of {', '.join(modules)}")
    return tuple(found)


def _bounded(
    scenario: Scenario, facts: Facts, plan: Plan, row: dict[str, int], stages: StageTable, why_not: tuple[str, ...]
) -> Pricing:
    """Between recomputing nothing and everything, where that is open, and less what is offloaded."""
    policies = (_NONE, _FULL) if _without_price(plan) else (row["recompute"],)
    table = PlanTable.of_rows([row | {"recompute": policy, "offload": 0} for policy in policies])
    full = predict_stages(facts, table, stages.take(np.zeros(len(policies), dtype=np.int64)))
    least = total(full.memory).min(axis=0)
    if plan.offload != "none":
        least = least - sum(full.memory[name].max(axis=0) for name in _LEAVES[plan.offload])
    fullest, stage = total(full.memory).argmax(axis=0), np.arange(plan.pp)
    memory = {name: term[fullest, stage] for name, term in full.memory.items()}
    return Pricing(
        prediction=None,
        memory=memory,
        least_bytes=np.maximum(least, 0.0),
        most_bytes=total(memory),
        step_time_s=(
            float(full.step_time_s.min()),
            float(full.step_time_s.max()) if plan.offload == "none" else None,
        ),
        beyond=beyond_of(scenario, row),
        open=why_not,
    )
