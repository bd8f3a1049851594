"""What a legal plan takes and needs, exactly where the cost model has it, between bounds where it does not.

The cost model recomputes all layers of a policy or none, and offloads nothing.
A plan that recomputes some of its layers is priced by mixing: seconds and bytes of a stage are linear in the layers
that run twice, but for the workspace of the recomputation, which is there or not, and for the part of the gradient
reduction that nothing hides. That part shrinks as the backward pass grows and never below one layer's bucket: it is
convex, so mixing charges it with at most what it is without recomputation. Everything else gets bounds, and no price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.arrays import Num, num
from costmodel.facts import Facts
from costmodel.layers import total
from costmodel.plan_rows import encode, layout_of, selective_modules, stages_of_plan
from costmodel.predict import StagePrediction, predict_stages
from costmodel.scenario import Scenario
from costmodel.spec.plan import RECOMPUTES, Plan
from costmodel.stages import Layout
from costmodel.table import PlanTable, StageTable, layer_counts
from planner.search.answer import in_words

Json = dict[str, Any]

_NONE, _FULL = RECOMPUTES.index("none"), RECOMPUTES.index("full")


@dataclass(frozen=True, kw_only=True)
class Pricing:
    """What is known of one plan.

    Attributes:
        prediction: in the words of the answer; None for a plan that the cost model can't price.
        memory: term -> bytes per stage, of the price or else of the upper bound.
        least_bytes, most_bytes: per stage; equal when priced.
        step_time_s: at least and at most; None where nothing bounds it.
        open: why there is no price, in words; empty when there is one.
    """

    prediction: Json | None
    memory: Mapping[str, Num]
    least_bytes: Num
    most_bytes: Num
    step_time_s: tuple[float | None, float | None]
    open: tuple[str, ...] = ()


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
    if _recomputes_some(plan):
        full, share = _mixed(facts, plan, row, stages), sum(plan.recomputed_layers_per_stage) / _layers(plan)
    else:
        full = predict_stages(facts, PlanTable.of_rows([row]), stages)
        share = float(plan.recompute == "full")
    (prediction,) = in_words(scenario, PlanTable.of_rows([row]), full, num([share]))
    memory = {name: term[0] for name, term in full.memory.items()}
    step, bytes_ = float(full.step_time_s[0]), total(memory)
    return Pricing(
        prediction=prediction, memory=memory, least_bytes=bytes_, most_bytes=bytes_, step_time_s=(step, step)
    )


def _layers(plan: Plan) -> int:
    return sum(plan.layers_per_stage)


def recomputes_like_no_other(scenario: Scenario, plan: Plan) -> bool:
    """Whether the plan recomputes as no plan of the search does: some layers, or modules of its own choice."""
    return _recomputes_some(plan) or _recomputes_in_part(scenario, plan)


def _recomputes_some(plan: Plan) -> bool:
    return plan.recompute == "full" and plan.recomputed_layers_per_stage != plan.layers_per_stage


def _not_priced(scenario: Scenario, plan: Plan) -> tuple[str, ...]:
    found: list[str] = []
    if plan.offload != "none":
        found.append(f"offload {plan.offload}")
    if _recomputes_in_part(scenario, plan):
        found.append(_recomputed_part(scenario, plan))
    return tuple(found)


def _recomputes_in_part(scenario: Scenario, plan: Plan) -> bool:
    if plan.recompute == "selective":
        other_modules = set(plan.recompute_modules) != set(selective_modules(scenario))
        return other_modules or any(plan.recomputed_layers_per_stage)
    layers, dense_layers = layer_counts(scenario)
    uniform = dense_layers in (0, layers) and scenario.model.num_mtp_layers == 0
    return _recomputes_some(plan) and not uniform


def _recomputed_part(scenario: Scenario, plan: Plan) -> str:
    if plan.recompute == "full":
        return "full recompute of some layers of a model whose layers differ in kind"
    if any(plan.recomputed_layers_per_stage):
        return "selective recompute beside recomputed layers"
    usual = ", ".join(selective_modules(scenario)) or "nothing"
    return f"selective recompute of {', '.join(plan.recompute_modules) or 'nothing'} (what is priced is {usual})"


def _mixed(facts: Facts, plan: Plan, row: dict[str, int], stages: StageTable) -> StagePrediction:
    """The price of a plan that recomputes some layers, each stage between what it is with none and with all."""
    layers, again = num(plan.layers_per_stage), num(plan.recomputed_layers_per_stage)
    # A stage without layers recomputes none.
    share, share_of_all = again / np.maximum(layers, 1.0), float(again.sum() / layers.sum())
    # A table whose every row has one stage gives each stage's own seconds instead of the slowest one's.
    single = StageTable(
        index=stages.index.T,
        dense_layers=stages.dense_layers.T,
        moe_layers=stages.moe_layers.T,
        has_embedding=stages.has_embedding.T,
        has_head=stages.has_head.T,
        work_share=stages.work_share.T,
    )

    def priced(recompute: int) -> StagePrediction:
        return predict_stages(facts, PlanTable.of_rows([row | {"recompute": recompute}] * plan.pp), single)

    none, full = priced(_NONE), priced(_FULL)

    def between(low: Num, high: Num, weight: Num | float) -> Num:
        return low + weight * (high - low)

    zero = np.zeros(plan.pp)
    # What a device waits follows the mean work of all of them.
    time = {
        name: between(none.time.get(name, zero), full.time.get(name, zero), share_of_all if name == "bubble" else share)
        for name in dict.fromkeys([*none.time, *full.time])
    }
    ends = total(time)
    critical = int(ends.argmax())
    memory = {name: between(term[:, 0], full.memory[name][:, 0], share) for name, term in none.memory.items()}
    memory["recompute_workspace"] = np.where(again > 0, full.memory["recompute_workspace"][:, 0], 0.0)
    return StagePrediction(
        step_time_s=ends[critical : critical + 1],
        peak_bytes=np.array([total(memory).max()]),
        time={name: np.broadcast_to(part, zero.shape)[critical : critical + 1] for name, part in time.items()},
        memory={name: term[np.newaxis, :] for name, term in memory.items()},
        critical_stage=np.array([critical]),
    )


def _bounded(
    scenario: Scenario, facts: Facts, plan: Plan, row: dict[str, int], stages: StageTable, why_not: tuple[str, ...]
) -> Pricing:
    """Between recomputing nothing and everything, where that is open, and less what is offloaded."""
    policies = (_NONE, _FULL) if _recomputes_in_part(scenario, plan) else (row["recompute"],)
    table = PlanTable.of_rows([row | {"recompute": policy} for policy in policies])
    full = predict_stages(facts, table, stages.take(np.zeros(len(policies), dtype=np.int64)))
    least = total(full.memory).min(axis=0)
    if plan.offload != "none":
        # What can be offloaded goes by the name of its memory term.
        least = least - full.memory[plan.offload].max(axis=0)
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
        open=why_not,
    )
