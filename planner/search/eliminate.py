"""Why meshes drop out: every mesh counts once under each rule that it breaks.

A rule that reads only mesh axes breaks a mesh outright. The other rules read the axes of one group of inner choices
(stages, sharding, CP exchange, recompute); a mesh breaks such a rule when no choice of the group passes all of the
group's rules and the plainest choice breaks this one. ``pins`` counts meshes for which pins and forbids leave a group
without any choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, product

import numpy as np

from costmodel.arrays import Bools, Ints, distinct
from costmodel.rules import Rule, rules_for
from costmodel.spec.options import BY_NAME
from planner.search.choices import axes_read, holds, is_asked, option_columns, policies
from planner.search.request import SearchRequest
from planner.search.space import (
    MESH_AXES,
    POLICY_AXES,
    SHARD_AXES,
    STAGE_AXES,
    Columns,
    offered_cp_comm,
    sharding_options,
    stage_options,
)

PINS = "pins"
MEMORY = "memory"

_ROWS_AT_ONCE = 500_000


@dataclass(kw_only=True)
class Elimination:
    """Which candidates are legal, and for the others which rules break how many, with one example row each."""

    legal: Bools
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, tuple[Rule, dict[str, int]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Inner axes chosen together; ``key`` names the mesh axes on which the choices depend."""

    axes: tuple[str, ...]
    key: tuple[str, ...]
    choices: Callable[..., Sequence[tuple[int, ...]]]


def groups_of(request: SearchRequest, rules: Sequence[Rule]) -> list[Group]:
    """The groups of inner axes; those that one rule reads together are chosen together."""
    groups = [
        Group(axes=STAGE_AXES, key=("pp",), choices=lambda pp: stage_options(request, pp)),
        Group(
            axes=SHARD_AXES, key=("tp", "cp", "dp"), choices=lambda tp, cp, dp: sharding_options(request, tp, cp, dp)
        ),
        Group(
            axes=("cp_comm_type",),
            key=("cp",),
            choices=lambda cp: [(code,) for code in (offered_cp_comm(request) if cp > 1 else (0,))],
        ),
        # Every mesh has the same policies; a group needs some axis as its key.
        Group(axes=POLICY_AXES, key=("pp",), choices=lambda _: policies(request)),
    ]
    for rule in rules:
        read = [group for group in groups if set(group.axes) & set(axes_read(request, rule))]
        if len(read) > 1:
            groups = [group for group in groups if group not in read] + [_joined(read)]
    return groups


def _joined(groups: Sequence[Group]) -> Group:
    key = tuple(sorted({axis for group in groups for axis in group.key}))

    def choices(*values: int) -> list[tuple[int, ...]]:
        at = dict(zip(key, values, strict=True))
        each = [group.choices(*(at[axis] for axis in group.key)) for group in groups]
        return [tuple(chain.from_iterable(parts)) for parts in product(*each)]

    return Group(axes=tuple(chain.from_iterable(group.axes for group in groups)), key=key, choices=choices)


def eliminate(request: SearchRequest, meshes: Columns) -> Elimination:
    """Check every candidate mesh against every rule of the framework."""
    scenario = request.scenario
    result = Elimination(legal=np.ones(len(meshes["tp"]), dtype=np.bool_))
    rules = tuple(rule for rule in rules_for(scenario.framework) if is_asked(request, rule))
    for rule in rules:
        if set(axes_read(request, rule)) <= set(MESH_AXES):
            broken = ~np.broadcast_to(holds(request, rule, meshes), result.legal.shape)
            at = np.flatnonzero(broken)[:1]
            inner = options_of(request, rule, {axis: column[at] for axis, column in meshes.items()})
            _count(result, rule, broken, meshes, inner)
            result.legal &= ~broken
    for group in groups_of(request, rules):
        own = [rule for rule in rules if set(axes_read(request, rule)) & set(group.axes)]
        _check_group(request, result, group, own, meshes)
    return result


def options_of(request: SearchRequest, rule: Rule, example: Columns) -> dict[str, int]:
    """The codes of the options that a rule reads, in an example of one row or none."""
    options = tuple(axis for axis in rule.axes if axis in BY_NAME)
    found = option_columns(request, example, options) if options else {}
    return {axis: int(code[0]) for axis, code in found.items() if len(code)}


def _count(result: Elimination, rule: Rule, broken: Bools, meshes: Columns, inner: dict[str, int]) -> None:
    if broken.any():
        first = int(np.flatnonzero(broken)[0])
        result.counts[rule.name] = result.counts.get(rule.name, 0) + int(broken.sum())
        result.examples.setdefault(rule.name, (rule, {axis: int(meshes[axis][first]) for axis in meshes} | inner))


def _check_group(request: SearchRequest, result: Elimination, group: Group, rules: list[Rule], meshes: Columns) -> None:
    """Judge each distinct tuple of the mesh axes that the group's choices and rules read, then spread the verdict."""
    read = sorted({axis for rule in rules for axis in axes_read(request, rule) if axis in MESH_AXES} | set(group.key))
    representative, inverse = distinct([meshes[axis] for axis in read])
    columns = {axis: meshes[axis][representative] for axis in read}
    choices, first, count = _choices_of(group, columns)
    passes = np.zeros(len(representative), dtype=np.bool_)
    broken = {rule.name: np.zeros(len(representative), dtype=np.bool_) for rule in rules}
    inner: dict[str, dict[str, int]] = {}
    for tuples in _in_blocks(count):
        # Every tuple of the block with every choice that it has, one after the other.
        of_row, start = np.repeat(tuples, count[tuples]), np.cumsum(count[tuples]) - count[tuples]
        place = np.arange(len(of_row)) - np.repeat(start, count[tuples])
        grid: dict[str, Ints] = {axis: column[of_row] for axis, column in columns.items()}
        grid |= dict(zip(group.axes, np.ascontiguousarray(choices[first[of_row] + place].T), strict=True))
        good = np.ones(len(of_row), dtype=np.bool_)
        for rule in rules:
            holding = np.broadcast_to(holds(request, rule, grid), good.shape)
            good &= holding
            fails = ~holding[start]
            broken[rule.name][tuples] = fails
            if fails.any() and rule.name not in inner:
                at = start[fails][:1]
                example = {axis: column[at] for axis, column in grid.items()}
                inner[rule.name] = {axis: int(grid[axis][at[0]]) for axis in group.axes}
                inner[rule.name] |= options_of(request, rule, example)
        passes[tuples] = np.logical_or.reduceat(good, start)
    no_choice = count == 0
    lost = ~(passes | no_choice)
    for rule in rules:
        _count(result, rule, (lost & broken[rule.name])[inverse], meshes, inner.get(rule.name, {}))
    if no_choice.any():
        result.counts[PINS] = result.counts.get(PINS, 0) + int(no_choice[inverse].sum())
    result.legal &= passes[inverse]


def _choices_of(group: Group, columns: Columns) -> tuple[Ints, Ints, Ints]:
    """Choices of all keys in one table, shape (choices, axes); for each tuple the first of its own, and how many."""
    keys, of_tuple = distinct([columns[axis] for axis in group.key])
    each = [
        np.array(group.choices(*key), dtype=np.int64).reshape(-1, len(group.axes))
        for key in zip(*(columns[axis][keys].tolist() for axis in group.key), strict=True)
    ]
    counts = np.array([len(own) for own in each], dtype=np.int64)
    table = np.concatenate(each) if each else np.zeros((0, len(group.axes)), dtype=np.int64)
    return table, (np.cumsum(counts) - counts)[of_tuple], counts[of_tuple]


def _in_blocks(count: Ints) -> Iterator[Ints]:
    """Tuples that have any choice, in parts with about as many rows as memory should hold at once."""
    some = np.flatnonzero(count)
    block = np.cumsum(count[some]) // _ROWS_AT_ONCE
    yield from np.split(some, np.flatnonzero(np.diff(block)) + 1) if len(some) else ()
