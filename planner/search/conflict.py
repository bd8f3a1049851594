"""The smallest conflict of a request that no plan answers.

First the user's wishes (``planner.search.wishes``): the fewest that nothing heeds all of, each with a mesh that would
do without it. Then, of the meshes that heed these, the fewest rules (``memory`` among them) such that each breaks one.
Both are minimum hitting sets. Where nothing would do even without any wish, no wish is part of the conflict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from costmodel.arrays import Bools
from costmodel.facts import Facts
from costmodel.rules import Rule, rules_for
from costmodel.table import PlanTable
from planner.search.broken import broken_sets
from planner.search.constraints import Contradiction
from planner.search.eliminate import MEMORY
from planner.search.hitting import smallest_hitting_set
from planner.search.leanest import nearest_plan
from planner.search.lifts import Lift, lifts_of
from planner.search.may_fit import may_fit
from planner.search.request import SearchRequest
from planner.search.space import Columns
from planner.search.wishes import MIN_FREE, Wish, every_mesh, keeping, wishes_of, without_free_memory

_BEFORE_WISHES = {"pin": 20, "forbid": 20, "min-free-gib": 10, "min-used": 30}
"""Which wishes are named where others would do: what was asked for in so many words comes before a default."""


@dataclass(kw_only=True)
class Conflict:
    """Why nothing fits.

    Attributes:
        wishes: the user's that are part of it; ``all_wishes`` are those that he has.
        against: of each wish about meshes, how many go against it.
        rules: of the framework, and ``memory``.
        examples, counts: of every rule that was broken: one row that breaks it, and how many meshes do.
        lifts: the smallest sets of wishes to lift, each with a mesh that then has a plan.
        leanest: where memory is in the way, the plan that lacks the least.
        request: the request with the wishes of the conflict alone.
    """

    wishes: tuple[Wish, ...] = ()
    all_wishes: tuple[Wish, ...] = ()
    against: dict[str, int] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    examples: dict[str, tuple[Rule, dict[str, int]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    lifts: tuple[Lift, ...] = ()
    leanest: PlanTable | None = None
    request: SearchRequest


def conflict_of(request: SearchRequest, facts: Facts, late: Callable[[], bool]) -> Conflict | None:
    """The conflict of a request that is known to be infeasible; None where ``late`` became true before it was found.

    Raises:
        InvalidInput: without the user's wishes there are more meshes than can be looked at.
    """
    wishes = wishes_of(request)
    meshes, heeded = every_mesh(request, wishes)
    lifts = lifts_of(request, facts, wishes, meshes, heeded, late)
    if not lifts.complete:
        return None
    rank = {wish.name: _BEFORE_WISHES[wish.kind] for wish in wishes}
    named = smallest_hitting_set([lift.wishes for lift in lifts.found], rank)
    core = tuple(wish for wish in wishes if wish.name in named)
    found = Conflict(wishes=core, all_wishes=wishes, lifts=lifts.found, request=keeping(request, core))
    if MIN_FREE not in {wish.kind for wish in core}:
        found.request = without_free_memory(found.request)
    heeding = np.ones(len(meshes["tp"]), dtype=np.bool_)
    for wish in core:
        if wish.name in heeded:
            found.against[wish.name] = int((~heeded[wish.name]).sum())
            heeding &= heeded[wish.name]
    if not _add_rules(found, facts, {axis: column[heeding] for axis, column in meshes.items()}, late):
        return None
    return found


def _add_rules(found: Conflict, facts: Facts, meshes: Columns, late: Callable[[], bool]) -> bool:
    """Find the rules that stop these meshes; False where ``late`` became true before."""
    if not len(meshes["tp"]):
        return True
    try:
        unfit = _unfit(found.request, facts, meshes)
        broken = broken_sets(found.request, meshes, unfit)
    except Contradiction:
        return True  # the wishes say it all
    if late():
        return False
    # What is legal does not fit: so the search proved.
    sets = [*broken.sets, *([frozenset({MEMORY})] if broken.legal.any() else [])]
    found.examples, found.counts = broken.examples, broken.counts
    found.counts[MEMORY] = int((unfit | broken.legal).sum())
    # The rule that reads the fewest axes says the most; among these the more general one.
    order = {rule.name: place for place, rule in enumerate(rules_for(found.request.scenario.framework))}
    telling = sorted(broken.examples, key=lambda name: (len(broken.examples[name][0].axes), order[name]))
    rank = {name: place + 1 for place, name in enumerate(telling)} | {MEMORY: 0}
    found.rules = tuple(sorted(smallest_hitting_set(sets, rank), key=lambda name: (rank.get(name, 99), name)))
    if MEMORY in found.rules and broken.legal.any():
        legal = {axis: column[broken.legal] for axis, column in meshes.items()}
        found.leanest = nearest_plan(found.request, facts, legal, late)
    return True


def _unfit(request: SearchRequest, facts: Facts, meshes: Columns) -> Bools:
    return ~may_fit(request, facts, meshes, float(request.scenario.usable_bytes))
