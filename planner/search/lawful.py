"""Rules of the framework on what is decided so far, so that no bound counts on what a rule refuses."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules import Rule, rules_for
from planner.search.choices import axes_read, holds, is_asked
from planner.search.request import SearchRequest
from planner.search.space import MESH_AXES, Columns


def lawful(request: SearchRequest, columns: Columns) -> Bools:
    """The rows that pass every rule on the axes of the columns; rules on legal meshes alone are not asked again."""
    passes = np.ones(len(columns["tp"]), dtype=np.bool_)
    for rule in rules_within(request, frozenset(columns)):
        passes &= holds(request, rule, columns)
    return passes


@lru_cache(maxsize=256)
def rules_within(request: SearchRequest, axes: frozenset[str]) -> tuple[Rule, ...]:
    """The rules that can fail on legal meshes and read none but these axes."""
    return tuple(rule for rule in rules_beyond_meshes(request) if set(axes_read(request, rule)) <= axes)


@lru_cache(maxsize=256)
def rules_beyond_meshes(request: SearchRequest) -> tuple[Rule, ...]:
    """The rules that can fail on legal meshes: some plan has what they are about, and they read more than the mesh."""
    return tuple(
        rule
        for rule in rules_for(request.scenario.framework)
        if is_asked(request, rule) and not set(axes_read(request, rule)) <= set(MESH_AXES)
    )
