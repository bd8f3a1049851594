"""Where plans fit but none is as fast as asked: the fastest there is says by how much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.answering.clock import Clock
from planner.search.request import SearchRequest
from planner.search.solve import Search

Json = dict[str, Any]

MAX_STEP_TIME = "max_step_time"
"""The conflict's name: a limit of the question, not a rule of a framework."""


def or_too_slow(request: SearchRequest, answer: Json, clock: Clock) -> Json:
    """The answer; where a limit on the step time leaves no plan but others would fit, with that as the conflict."""
    if request.max_step_time_s is None or answer["status"] != "infeasible":
        return answer
    unlimited = replace(
        request, max_step_time_s=None, objective="step_time", top=1, explain=False, max_seconds=clock.seconds()
    )
    outcome = Search(unlimited, stopped=clock.stopped).run()
    if not outcome.best:
        return answer
    best = outcome.best[0]
    sure = "the fastest plan" if outcome.best_proven else "the fastest plan that was found"
    reason = (
        f"{sure} takes {best.step_time_s:.4g} s a step on {best.devices_used} devices, and --max-step-time asks for at "
        f"most {request.max_step_time_s:.4g} s"
    )
    conflict = [{"rule": MAX_STEP_TIME, "meshes": outcome.meshes, "reason": reason}]
    return answer | {"infeasibility": {**answer["infeasibility"], "conflict": conflict}}
