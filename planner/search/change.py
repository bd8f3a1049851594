"""A change to a question that may make a plan fit, and the quick test whether it does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.facts import Facts
from planner.search.lifts import Late, first_with_a_plan
from planner.search.request import SearchRequest
from planner.search.space import mesh_candidates


@dataclass(frozen=True, kw_only=True)
class Change:
    """Another question, near the one that was asked.

    Attributes:
        told: what changes, in words.
        flags: options of the command line to add, in place of the same option with another value.
        leave_out: those to leave out.
        fields: the same as fields of ``POST /v1/searches``.
        cost: what it costs, in words.
        lifted: names of the wishes that are given up.
    """

    told: str
    request: SearchRequest
    flags: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    lifted: frozenset[str] = frozenset()
    fields: dict[str, Any] = field(default_factory=dict)
    cost: str


def has_a_plan(request: SearchRequest, late: Late) -> bool:
    """Whether some plan is legal and fits; False too where there are too many to look at."""
    try:
        meshes = mesh_candidates(request)
        return (
            len(meshes["tp"]) > 0 and first_with_a_plan(request, Facts.of(request.scenario), meshes, late) is not None
        )
    except InvalidInput:
        return False
