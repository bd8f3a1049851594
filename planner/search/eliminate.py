"""Why meshes drop out: every mesh counts once under each rule that it breaks.

A rule that reads only mesh axes breaks a mesh outright. The other rules read the axes of one group of inner choices
(stages, sharding, CP exchange, recompute); a mesh breaks such a rule when no choice of the group passes all of the
group's rules and the plainest choice breaks this one. ``pins`` counts meshes for which pins and forbids leave a group
without any choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@dataclass(kw_only=True)
class Elimination:
    """Which candidates are legal, and for the others which rules break how many, with one example row each."""

    legal: Bools
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, tuple[Rule, dict[str, int]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Inner axes chosen together; ``key`` names the mesh axes on which the choices depend."""

    axes: tuple[str, ...]
    key: tuple[str, ...]
    choices: Callable[..., Sequence[tuple[int, ...]]]


def _groups(request: SearchRequest, rules: Sequence[Rule]) -> list[_Group]:
    """The groups of inner axes; those that one rule reads together are chosen together."""
    groups = [
        _Group(axes=STAGE_AXES, key=("pp",), choices=lambda pp: stage_options(request, pp)),
        _Group(
            axes=SHARD_AXES, key=("tp", "cp", "dp"), choices=lambda tp, cp, dp: sharding_options(request, tp, cp, dp)
        ),
        _Group(
            axes=("cp_comm_type",),
            key=("cp",),
            choices=lambda cp: [(code,) for code in (offered_cp_comm(request) if cp > 1 else (0,))],
        ),
        # Every mesh has the same policies; a group needs some axis as its key.
        _Group(axes=POLICY_AXES, key=("pp",), choices=lambda _: policies(request)),
    ]
    for rule in rules:
        read = [group for group in groups if set(group.axes) & set(axes_read(request, rule))]
        if len(read) > 1:
            groups = [group for group in groups if group not in read] + [_joined(read)]
    return groups


def _joined(groups: Sequence[_Group]) -> _Group:
    key = tuple(sorted({axis for group in groups for axis in group.key}))

    def choices(*values: int) -> list[tuple[int, ...]]:
        at = dict(zip(key, values, strict=True))
        each = [group.choices(*(at[axis] for axis in group.key)) for group in groups]
        return [tuple(chain.from_iterable(parts)) for parts in product(*each)]

    return _Group(axes=tuple(chain.from_iterable(group.axes for group in groups)), key=key, choices=choices)


def eliminate(request: SearchRequest, meshes: Columns) -> Elimination:
    """Check every candidate mesh against every rule of the framework."""
    scenario = request.scenario
    result = Elimination(legal=np.ones(len(meshes["tp"]), dtype=np.bool_))
    rules = tuple(rule for rule in rules_for(scenario.framework) if is_asked(request, rule))
    for rule in rules:
        if set(axes_read(request, rule)) <= set(MESH_AXES):
            broken = ~np.broadcast_to(holds(request, rule, meshes), result.legal.shape)
            at = np.flatnonzero(broken)[:1]
            inner = _options_of(request, rule, {axis: column[at] for axis, column in meshes.items()})
            _count(result, rule, broken, meshes, inner)
            result.legal &= ~broken
    for group in _groups(request, rules):
        own = [rule for rule in rules if set(axes_read(request, rule)) & set(group.axes)]
        _check_group(request, result, group, own, meshes)
    return result


def _options_of(request: SearchRequest, rule: Rule, example: Columns) -> dict[str, int]:
    """The codes of the options that a rule reads, in an example of one row or none."""
    options = tuple(axis for axis in rule.axes if axis in BY_NAME)
    found = option_columns(request, example, options) if options else {}
    return {axis: int(code[0]) for axis, code in found.items() if len(code)}


def _count(result: Elimination, rule: Rule, broken: Bools, meshes: Columns, inner: dict[str, int]) -> None:
    if broken.any():
        first = int(np.flatnonzero(broken)[0])
        result.counts[rule.name] = result.counts.get(rule.name, 0) + int(broken.sum())
        result.examples.setdefault(rule.name, (rule, {axis: int(meshes[axis][first]) for axis in meshes} | inner))


def _check_group(
    request: SearchRequest, result: Elimination, group: _Group, rules: list[Rule], meshes: Columns
) -> None:
    """Judge each distinct tuple of the mesh axes that the group's choices and rules read, then spread the verdict."""
    read = sorted({axis for rule in rules for axis in axes_read(request, rule) if axis in MESH_AXES} | set(group.key))
    representative, inverse = distinct([meshes[axis] for axis in read])
    columns = {axis: meshes[axis][representative] for axis in read}
    by_choices: dict[tuple[int, ...], list[int]] = {}
    for index, key in enumerate(zip(*(columns[axis].tolist() for axis in group.key), strict=True)):
        by_choices.setdefault(key, []).append(index)
    passes = np.zeros(len(representative), dtype=np.bool_)
    no_choice = np.zeros(len(representative), dtype=np.bool_)
    broken: dict[str, Bools] = {rule.name: np.zeros(len(representative), dtype=np.bool_) for rule in rules}
    inner: dict[str, dict[str, int]] = {}
    for key, indices in by_choices.items():
        at = np.array(indices, dtype=np.int64)
        choices = np.array(group.choices(*key), dtype=np.int64).reshape(-1, len(group.axes))
        if not len(choices):
            no_choice[at] = True
            continue
        grid: dict[str, Ints] = {axis: columns[axis][at][:, np.newaxis] for axis in read}
        grid |= {axis: choices[np.newaxis, :, position] for position, axis in enumerate(group.axes)}
        shape = (len(at), len(choices))
        verdicts = {rule.name: np.broadcast_to(holds(request, rule, grid), shape) for rule in rules}
        good = np.logical_and.reduce(list(verdicts.values())) if verdicts else np.ones(shape, dtype=np.bool_)
        passes[at] = good.any(axis=1)
        for rule in rules:
            fails = ~verdicts[rule.name][:, 0]
            broken[rule.name][at] = fails
            if fails.any() and rule.name not in inner:
                first = {axis: choices[0, position] for position, axis in enumerate(group.axes)}
                inner[rule.name] = {axis: int(code) for axis, code in first.items()}
                example = {axis: columns[axis][at][fails][:1] for axis in read}
                example |= {axis: np.array([code]) for axis, code in first.items()}
                inner[rule.name] |= _options_of(request, rule, example)
    lost = ~(passes | no_choice)
    for rule in rules:
        _count(result, rule, (lost & broken[rule.name])[inverse], meshes, inner.get(rule.name, {}))
    if no_choice.any():
        result.counts[PINS] = result.counts.get(PINS, 0) + int(no_choice[inverse].sum())
    result.legal &= passes[inverse]
