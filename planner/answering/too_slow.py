"""Where plans fit but none is as fast as asked: the fastest there is says by how much, and is what may be had."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log10
from typing import Any

from planner.answering.clock import Clock
from planner.search.answer import answer_of, infeasibility
from planner.search.change import Change
from planner.search.infeasible import in_words
from planner.search.request import SearchRequest
from planner.search.solve import Search

Json = dict[str, Any]

MAX_STEP_TIME = "max_step_time"
"""The conflict's name: a limit of the question, not a rule of a framework."""


def or_too_slow(request: SearchRequest, answer: Json, clock: Clock, *, why: bool = True) -> Json:
    """The answer; where a limit on the step time leaves no plan but others would fit, with that as the conflict.

    Args:
        why: as in ``answer_of``: where nothing would fit at any speed.
    """
    if request.max_step_time_s is None or answer["status"] != "infeasible":
        return answer
    unlimited = replace(
        request, max_step_time_s=None, objective="step_time", top=1, explain=False, max_seconds=clock.seconds()
    )
    search = Search(unlimited, stopped=clock.stopped)
    outcome = search.run()
    if not outcome.best:
        explained = why and outcome.proven
        found = infeasibility(unlimited, search.facts, outcome, clock.stopped) if explained else answer["infeasibility"]
        return answer | {"infeasibility": found}
    best = outcome.best[0]
    sure = "the fastest plan" if outcome.best_proven else "the fastest plan that was found"
    reason = (
        f"{sure} takes {best.step_time_s:.4g} s a step on {best.devices_used} devices, and --max-step-time asks for at "
        f"most {request.max_step_time_s:.4g} s"
    )
    conflict = [{"rule": MAX_STEP_TIME, "meshes": outcome.meshes, "reason": reason}]
    # Three digits, and no less than it takes.
    digits = 3 - ceil(log10(best.step_time_s))
    enough = ceil(best.step_time_s * 10.0**digits) / 10.0**digits
    entry = answer_of(unlimited, search.facts, replace(outcome, best=outcome.best[:1]))["plans"][0]
    slower = in_words(
        Change(
            told=f"allow {enough:g} s a step instead of {request.max_step_time_s:g}",
            request=replace(request, max_step_time_s=enough),
            flags=(f"--max-step-time {enough:g}",),
            fields={"max_step_time_s": enough},
            cost="no more devices, the same training",
        ),
        entry,
    )
    return answer | {"infeasibility": {"conflict": conflict, "minimal": True, "relaxations": [slower]}}
