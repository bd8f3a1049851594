"""The best plan of the same scenario, what it would gain, and where the given plan stands among the best."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from costmodel.arrays import num
from costmodel.plan_rows import encode
from costmodel.spec.plan import Plan
from costmodel.stages import Layout
from planner.check.changes import changes_between
from planner.check.distance import Reference
from planner.explain.beats import beats
from planner.search.answer import answer_of
from planner.search.objective import objective_of
from planner.search.priced import ROUNDING, Priced
from planner.search.request import SearchRequest
from planner.search.solve import Outcome, Search

Json = dict[str, Any]


def search_best(request: SearchRequest, seconds: float) -> tuple[Search, Outcome]:
    """What ``suggest`` would answer, within what is left of the time."""
    search = Search(replace(request, max_seconds=max(seconds, 1e-3)))
    return search, search.run()


def best_of(search: Search, outcome: Outcome, plan: Plan, reference: Reference, prediction: Json | None) -> Json:
    """The best plan against the given one.

    Args:
        prediction: of the given plan; None when it is illegal, does not fit or has no price.
    """
    request, scenario = search.request, search.request.scenario
    answer = answer_of(request, search.facts, replace(outcome, best=outcome.best[:1]))
    first = answer["plans"][0]
    changes, follows = changes_between(reference, plan, outcome.best[0].plan(scenario), scenario)
    found: Json = {
        "plan": first["plan"],
        "prediction": first["prediction"],
        "objective": request.objective,
        "status": answer["status"],
        "changes": changes,
        "follows": follows,
        "gain": None,
        "intervals_overlap": None,
        "rank": None,
        "because": None,
        "listed": len(outcome.best),
    }
    if prediction is None:
        return found
    objective = objective_of(request)
    own = float(objective.value(num(prediction["step_time_s"]), num(plan.devices_used)))
    best = outcome.best[0].objective
    shown_own, shown_best = objective.shown(own), objective.shown(best)
    found["gain"] = (shown_own - shown_best) / shown_own
    found["intervals_overlap"] = first["prediction"]["step_time_interval_s"][1] >= prediction["step_time_interval_s"][0]
    found["because"] = beats(first, {"plan": plan.model_dump(mode="json"), "prediction": prediction})
    found["rank"] = _rank(search, outcome, plan, own)
    return found


def _rank(search: Search, outcome: Outcome, plan: Plan, own: float) -> int | None:
    """Where the plan would stand among the different plans; None where only a longer list could tell."""
    whole = len(outcome.best) < search.request.top
    if not outcome.proven or (own > outcome.best[-1].objective * (1.0 + ROUNDING) and not whole):
        return None
    row = encode(search.request.scenario, plan, Layout.EVEN)
    family = Priced(row=row, step_time_s=0, peak_bytes=0, objective=0, devices_used=0).family
    better = (other for other in outcome.best if other.objective < own * (1.0 - ROUNDING) and other.family != family)
    return 1 + sum(1 for _ in better)
