"""Search requests for tests, and the whole of what one searches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from costmodel.scenario import Scenario
from costmodel.spec.plan import RECOMPUTES
from planner import resolving
from planner.question import Question
from planner.search.answer import answer_to
from planner.search.constraints import Constraints
from planner.search.eliminate import eliminate
from planner.search.request import SearchRequest
from planner.search.rows import rows_of
from planner.search.space import Columns, mesh_candidates


def request_of(scenario: Scenario, pins: Iterable[str] = (), forbids: Iterable[str] = (), **how: Any) -> SearchRequest:
    """A request with the texts of ``--pin`` and ``--forbid``."""
    return SearchRequest(scenario=scenario, constraints=Constraints.parse(pins, forbids), **how)


def every_row(request: SearchRequest) -> Columns:
    """All legal meshes with every recompute policy and every way to shard them."""
    candidates = mesh_candidates(request)
    legal = eliminate(request, candidates).legal
    meshes = {axis: column[legal] for axis, column in candidates.items()}
    mesh, recompute = (grid.ravel() for grid in np.indices((int(legal.sum()), len(RECOMPUTES))))
    return rows_of(request, meshes, recompute, mesh)[0]


def suggest(question: Question) -> dict[str, Any]:
    """The answer of ``planner suggest --json``."""
    return answer_to(resolving.request_of(question))
