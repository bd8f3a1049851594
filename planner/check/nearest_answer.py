"""The nearest plan in the words of the answer, and where it was looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costmodel.certainty import memory_error_of
from costmodel.errors import InvalidInput
from costmodel.facts import Facts
from costmodel.plan_rows import chunks_of_plan, layout_of
from costmodel.rules import rules_for
from costmodel.spec.plan import Plan
from planner.check.changes import changes_between
from planner.check.distance import Reference
from planner.check.judge import Broken
from planner.check.memory import stage_verdicts, worst
from planner.check.nearest import NearestSearch
from planner.check.price import price
from planner.search.constraints import Contradiction
from planner.search.request import SearchRequest
from planner.search.room import Room
from planner.search.space import domains

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """What the search for the nearest plan found.

    Attributes:
        answer: None when there is none, or when the deadline came first.
        searched: the values of the degrees that were looked at; ``own`` are those that only the given plan has.
    """

    answer: Json | None
    searched: Json | None
    warnings: tuple[str, ...]


def nearest_of(
    request: SearchRequest, facts: Facts, plan: Plan, reference: Reference, broken: tuple[Broken, ...], deadline: float
) -> Nearest:
    """The nearest legal plan that fits."""
    scenario = request.scenario
    layout_rules = {rule.name for rule in rules_for(scenario.framework) if "layout" in rule.axes}
    layers_stand = not (layout_rules | {"layers_add_up", "chunks_add_up"}) & {entry.rule for entry in broken}
    own = layout_of(plan, scenario.model.num_layers) is None and layers_stand
    try:
        search = NearestSearch(
            request=request,
            facts=facts,
            reference=reference,
            own_layers=chunks_of_plan(plan) if own else None,
            deadline=deadline,
        )
        found, complete = search.run()
    except Contradiction:
        return Nearest(answer=None, searched=None, warnings=())
    except InvalidInput as error:
        if error.field != "space":
            raise
        return Nearest(answer=None, searched=None, warnings=(f"no nearest plan was searched: {error}",))
    cut = "--max-seconds cut the search for the nearest plan; a nearer one may exist"
    warnings = () if complete else (cut,)
    searched = {**vars(domains(search.widened)), "own": dict(search.outside)}
    if found is None:
        return Nearest(answer=None, searched=searched, warnings=warnings)
    changes, follows = changes_between(reference, plan, found.plan, scenario)
    pricing = price(scenario, found.plan)
    answer = {
        "plan": found.plan.model_dump(mode="json"),
        "status": worst(stage_verdicts(pricing, Room.of(scenario, memory_error_of(scenario, pricing.beyond)))),
        "distance": {"steps": found.steps, "axes": found.axes, "doublings": found.doublings},
        "changes": changes,
        "follows": follows,
        "prediction": pricing.prediction,
        "proven": complete,
    }
    return Nearest(answer=answer, searched=searched, warnings=warnings)
