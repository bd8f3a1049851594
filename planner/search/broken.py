"""Which sets of rules meshes break, as an explanation needs them: every way in which a mesh fails.

A mesh that breaks a rule on mesh axes breaks it whatever is chosen inside. Where no choice of a group of inner axes
passes, each choice fails in its own way; the smallest of these sets of rules are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from costmodel.arrays import Bools, Ints, distinct
from costmodel.rules import Rule, rules_for
from planner.search.choices import axes_read, holds, is_asked
from planner.search.eliminate import MEMORY, Group, groups_of, options_of
from planner.search.hitting import minimal
from planner.search.request import SearchRequest
from planner.search.space import MESH_AXES, Columns


@dataclass(kw_only=True)
class Broken:
    """What some meshes break.

    Attributes:
        legal: the meshes that break nothing.
        choiceless: those for which pins and forbids leave nothing to choose inside.
        sets: smallest sets of rules (and ``memory``) of the other meshes.
        examples: of each rule one row that breaks it; ``counts`` how many meshes do.
    """

    legal: Bools
    choiceless: Bools
    sets: tuple[frozenset[str], ...] = ()
    examples: dict[str, tuple[Rule, dict[str, int]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def broken_sets(request: SearchRequest, meshes: Columns, unfit: Bools) -> Broken:
    """Check every mesh against every rule.

    Args:
        unfit: meshes that do not fit, whatever rules they break.
    """
    count = len(meshes["tp"])
    rules = tuple(rule for rule in rules_for(request.scenario.framework) if is_asked(request, rule))
    found = Broken(legal=np.ones(count, dtype=np.bool_), choiceless=np.zeros(count, dtype=np.bool_))
    outright: dict[str, Bools] = {MEMORY: unfit}
    for rule in rules:
        if set(axes_read(request, rule)) <= set(MESH_AXES):
            breaks = ~np.broadcast_to(holds(request, rule, meshes), found.legal.shape)
            found.legal &= ~breaks
            if breaks.any():
                outright[rule.name] = breaks
                _note(request, found, rule, breaks, meshes, {})
    codes: list[Ints] = []
    ways: list[list[tuple[frozenset[str], ...]]] = []
    for group in groups_of(request, rules):
        own = [rule for rule in rules if set(axes_read(request, rule)) & set(group.axes)]
        code, ways_of_group = _ways_of_group(request, found, group, own, meshes)
        codes.append(code)
        ways.append(ways_of_group)
    failing = np.flatnonzero((~found.legal | unfit) & ~found.choiceless)
    names = list(outright)
    keys = [outright[name][failing].astype(np.int64) for name in names] + [code[failing] for code in codes]
    first = distinct(keys)[0] if len(failing) else np.zeros(0, dtype=np.int64)
    sets = set[frozenset[str]]()
    for at in first.tolist():
        base = frozenset(name for place, name in enumerate(names) if keys[place][at])
        options = [sets_of[int(keys[len(names) + place][at])] for place, sets_of in enumerate(ways)]
        sets |= {base.union(*parts) for parts in product(*options)}
    found.sets = minimal(sets)
    return found


def _note(
    request: SearchRequest, found: Broken, rule: Rule, breaks: Bools, meshes: Columns, inner: dict[str, int]
) -> None:
    """Count a rule's meshes and keep one as its example."""
    found.counts[rule.name] = found.counts.get(rule.name, 0) + int(breaks.sum())
    if rule.name not in found.examples:
        at = int(np.flatnonzero(breaks)[0])
        row = {axis: int(column[at]) for axis, column in meshes.items()} | inner
        options = options_of(request, rule, {axis: np.array([code]) for axis, code in row.items()})
        found.examples[rule.name] = (rule, row | options)


def _ways_of_group(
    request: SearchRequest, found: Broken, group: Group, rules: list[Rule], meshes: Columns
) -> tuple[Ints, list[tuple[frozenset[str], ...]]]:
    """For each mesh the place among ways to fail of its own; place 0 is to pass."""
    read = sorted({axis for rule in rules for axis in axes_read(request, rule) if axis in MESH_AXES} | set(group.key))
    representative, inverse = distinct([meshes[axis] for axis in read])
    columns = {axis: meshes[axis][representative] for axis in read}
    ways: list[tuple[frozenset[str], ...]] = [(frozenset(),)]
    code = np.zeros(len(representative), dtype=np.int64)
    for at, choices, holding in _verdicts(request, group, rules, columns):
        if not len(choices):
            found.choiceless |= np.isin(inverse, at)
            continue
        names = list(holding)
        fails = np.stack([~holding[name] for name in names]) if names else np.zeros((0, len(at), len(choices)), bool)
        for index, place in enumerate(at.tolist()):
            here = fails[:, index, :]
            if not here.any(axis=0).all():
                continue
            sets = minimal({frozenset(np.array(names)[column].tolist()) for column in here.T})
            if sets not in ways:
                ways.append(sets)
            code[place] = ways.index(sets)
            for rule in rules:
                if any(rule.name in one for one in sets) and rule.name not in found.examples:
                    choice = choices[int(np.flatnonzero(here[names.index(rule.name)])[0])]
                    inner = {axis: int(value) for axis, value in zip(group.axes, choice, strict=True)}
                    _note(request, found, rule, inverse == place, meshes, inner)
                elif any(rule.name in one for one in sets):
                    found.counts[rule.name] += int((inverse == place).sum())
    found.legal &= (code == 0)[inverse] & ~found.choiceless
    return code[inverse], ways


def _verdicts(
    request: SearchRequest, group: Group, rules: Sequence[Rule], columns: Columns
) -> Iterator[tuple[Ints, Ints, dict[str, Bools]]]:
    """For all rows with the same choices of a group: their places, the choices, and for each rule where it holds.

    Shapes: (r,), (c, axes) and (r, c). Without any choice the last is empty.

    Args:
        columns: mesh axes, at least those that the rules read and the group's key.
    """
    by_choices: dict[tuple[int, ...], list[int]] = {}
    for index, key in enumerate(zip(*(columns[axis].tolist() for axis in group.key), strict=True)):
        by_choices.setdefault(key, []).append(index)
    for key, indices in by_choices.items():
        at = np.array(indices, dtype=np.int64)
        choices = np.array(group.choices(*key), dtype=np.int64).reshape(-1, len(group.axes))
        if not len(choices):
            yield at, choices, {}
            continue
        grid: dict[str, Ints] = {axis: column[at][:, np.newaxis] for axis, column in columns.items()}
        grid |= {axis: choices[np.newaxis, :, position] for position, axis in enumerate(group.axes)}
        shape = (len(at), len(choices))
        yield at, choices, {rule.name: np.broadcast_to(holds(request, rule, grid), shape) for rule in rules}
