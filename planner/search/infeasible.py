"""Why nothing fits, as answers say it: the smallest conflict in words with numbers, and what would make it fit.

Every relaxation was verified by a search of its own and carries the plan that it found; what could not be verified in
time is not offered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from threading import Event
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.facts import Facts
from planner.search.change import Change
from planner.search.changes import DEVICES, changes_for
from planner.search.conflict import Conflict, conflict_of
from planner.search.eliminate import MEMORY
from planner.search.lifts import Late
from planner.search.request import SearchRequest
from planner.search.rule_words import every_rule, memory_reason
from planner.search.solve import Outcome
from planner.search.wish_words import beyond_devices, wish_reason

Json = dict[str, Any]
Answer = Callable[[SearchRequest], Json | None]
"""The answer to another question with its best plan alone; None where the time was up."""

MOST_RELAXATIONS = 5
_MOST_SOLVES = 8
_LEAST_SECONDS = 1.0
_MOST_SECONDS = 12.0


def explained(request: SearchRequest, facts: Facts, outcome: Outcome, answer: Answer, stopped: Event | None) -> Json:
    """``{conflict, minimal, relaxations}`` of a request that is proven to be infeasible.

    It takes what the search left of the request's seconds, at least one and at most twelve.
    """
    seconds = min(max(request.max_seconds - outcome.elapsed_s, _LEAST_SECONDS), _MOST_SECONDS)
    deadline = time.monotonic() + seconds

    def late() -> bool:
        return time.monotonic() > deadline or (stopped is not None and stopped.is_set())

    def half_late() -> bool:
        return time.monotonic() > deadline - seconds / 2 or late()

    try:
        conflict = conflict_of(request, facts, half_late)
    except InvalidInput:
        conflict = None  # without the wishes there are too many meshes to look at
    if conflict is None:
        return unexplained(request, facts, outcome)
    beyond = beyond_devices(request, conflict) if not conflict.rules else None
    if beyond is not None:
        conflict.rules = (DEVICES,)
        stopper = _stops_all(outcome)
        if stopper is not None:  # says more than that the devices are too few
            conflict.rules, beyond = (stopper, DEVICES), None
    relaxed = relaxations_of(request, facts, conflict, answer, late, deadline)
    plans = {change.lifted: found["plan"] for change, found in relaxed if change.lifted}
    return {
        "conflict": conflict_in_words(request, facts, outcome, conflict, beyond, plans),
        "minimal": True,
        "relaxations": [found for _, found in relaxed],
    }


def _stops_all(outcome: Outcome) -> str | None:
    """The rule that stopped every mesh of the search; of several the one that reads the fewest axes."""
    examples, counts = outcome.elimination.examples, outcome.elimination.counts
    stopped = [name for name in examples if counts.get(name, 0) == outcome.meshes]
    return min(stopped, key=lambda name: (len(examples[name][0].axes), name), default=None)


def unexplained(request: SearchRequest, facts: Facts, outcome: Outcome) -> Json:
    """Every rule that stops a mesh, and no relaxation."""
    return {"conflict": every_rule(request, facts, outcome), "minimal": False, "relaxations": []}


# -- the conflict ---------------------------------------------------------------------------------------------------


def conflict_in_words(
    request: SearchRequest,
    facts: Facts,
    outcome: Outcome,
    conflict: Conflict,
    beyond: str | None,
    plans: Mapping[frozenset[str], Json],
) -> list[Json]:
    """One entry for each rule and each wish of the conflict, memory first, wishes last.

    Args:
        beyond: that the devices are too few for the wishes, in words.
        plans: what was found without some wishes.
    """
    found: list[Json] = []
    counted = outcome.elimination.counts
    if beyond is not None:
        found.append({"rule": DEVICES, "meshes": 0, "reason": beyond})
    for name in sorted(conflict.rules, key=lambda rule: rule != MEMORY):
        if name == DEVICES:
            continue
        if name == MEMORY:
            reason = memory_reason(request, facts, outcome.leanest or conflict.leanest)
        else:
            rule, row = outcome.elimination.examples.get(name) or conflict.examples[name]
            reason = rule.reason(request.scenario, row)
        found.append({"rule": name, "meshes": counted.get(name, conflict.counts.get(name, 0)), "reason": reason})
    found += [
        {
            "rule": wish.name,
            "meshes": conflict.against.get(wish.name, outcome.meshes),
            "reason": wish_reason(request, wish, conflict, plans),
        }
        for wish in conflict.wishes
    ]
    return found


# -- relaxations ----------------------------------------------------------------------------------------------------


def relaxations_of(
    request: SearchRequest, facts: Facts, conflict: Conflict, answer: Answer, late: Late, deadline: float
) -> list[tuple[Change, Json]]:
    """The cheapest changes under which a search finds a plan, each with it."""
    found: list[tuple[Change, Json]] = []
    for change in islice(changes_for(request, conflict, facts, late), _MOST_SOLVES):
        if late() or len(found) == MOST_RELAXATIONS:
            break
        share = max((deadline - time.monotonic()) / 2, 0.05)
        near = answer(replace(change.request, top=1, explain=False, max_seconds=share))
        if near is not None:
            found.append((change, in_words(change, near["plans"][0])))
    return found


def in_words(change: Change, entry: Json) -> Json:
    """A relaxation as answers have it; ``entry`` is the first plan of an answer."""
    return {
        "change": change.told,
        "flags": list(change.flags),
        "leave_out": list(change.leave_out),
        "fields": change.fields,
        "cost": change.cost,
        "changes_training": "changes the training" in change.cost,
        **{name: entry[name] for name in ("plan", "options", "prediction")},
    }
