"""Which meshes a relaxation of memory can't rule out; meshes that break a rule are judged too."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.facts import Facts
from planner.search.bounds import leanest_stages, memory_bounds, with_inner
from planner.search.choices import policies
from planner.search.device_bounds import RowBound
from planner.search.request import SearchRequest
from planner.search.space import Columns, stage_options
from planner.search.stage_steps import rows_that_may_fit

_BEYOND_LAYERS = 2
"""Chunks beside those of the layers: the embedding and the loss may each fill one."""


def may_fit(request: SearchRequest, facts: Facts, meshes: Columns, usable: float) -> Bools:
    """Whether some plan of a mesh could fit into ``usable`` bytes: False is certain, True may be wrong."""
    possible = np.zeros(len(meshes["tp"]), dtype=np.bool_)
    for policy in policies(request):
        for zero in leanest_stages(request):
            left = np.flatnonzero(~possible)
            if not len(left):
                return possible
            some = {axis: column[left] for axis, column in meshes.items()}
            lean = memory_bounds(request, facts, with_inner(some, policy=policy, zero_stage=zero))
            # Nothing bounds a layout that there is not; its own rule refuses it.
            beyond = [pp for pp in np.unique(some["pp"]).tolist() if _beyond_layers(request, pp)]
            fitting = rows_that_may_fit(request, some, RowBound.of_memory(lean), usable)
            possible[left] = np.isin(some["pp"], beyond) | fitting
    return possible


def _beyond_layers(request: SearchRequest, pp: int) -> bool:
    """Whether pins have stages cut into more chunks than there are layers."""
    most = request.scenario.model.num_layers + _BEYOND_LAYERS
    return any(vpp > 1 and pp * vpp > most for vpp, _, _ in stage_options(request, pp))
