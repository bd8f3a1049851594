"""The smallest set that has something of every one of some sets: a minimum hitting set, by CP-SAT."""

from __future__ import annotations

from collections.abc import Collection, Mapping

_ALONE = 1000
"""What an element weighs beside its rank: ranks decide between sets of the same size only."""
_SECONDS = 2.0


def minimal(sets: Collection[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """The sets that contain no other one; hitting these hits all."""
    kept: list[frozenset[str]] = []
    for one in sorted(set(sets), key=lambda each: (len(each), sorted(each))):
        if not any(other <= one for other in kept):
            kept.append(one)
    return tuple(kept)


def smallest_hitting_set(sets: Collection[frozenset[str]], rank: Mapping[str, int]) -> frozenset[str]:
    """The fewest elements such that every set has one of them; among equally many, those of the lowest rank.

    Deterministic: one worker, a fixed seed, elements in their order. Empty for no sets.

    Args:
        rank: 0..99 for every element, how little it tells; elements that are not named have 99.

    Raises:
        ValueError: a set is empty, so that nothing can hit it.
    """
    least = minimal(sets)
    if not least:
        return frozenset()
    if frozenset() in least:
        raise ValueError("an empty set can not be hit")
    if len(least) == 1:
        # By far the commonest case needs no solver.
        return frozenset([min(least[0], key=lambda name: (rank.get(name, 99), name))])
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = {name: model.new_bool_var(name) for name in sorted(frozenset().union(*least))}
    for one in least:
        model.add_bool_or([chosen[name] for name in sorted(one)])
    # The last summand makes the order of names decide what nothing else does.
    weights = {name: (_ALONE + min(rank.get(name, 99), 99)) * len(chosen) + place for place, name in enumerate(chosen)}
    model.minimize(sum(weights[name] * variable for name, variable in chosen.items()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = _SECONDS
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return _greedy(least, rank)
    return frozenset(name for name, variable in chosen.items() if solver.value(variable))


def _greedy(sets: Collection[frozenset[str]], rank: Mapping[str, int]) -> frozenset[str]:
    """A hitting set without a superfluous element, not always the smallest: where the solver found none in time."""
    left, found = list(sets), set[str]()
    while left:
        names = sorted(frozenset().union(*left))
        best = max(names, key=lambda name: (sum(name in one for one in left), -rank.get(name, 99)))
        found.add(best)
        left = [one for one in left if best not in one]
    for name in sorted(found):
        if all(one & (found - {name}) for one in sets):
            found.discard(name)
    return frozenset(found)
