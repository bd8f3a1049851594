"""Which meshes a relaxation of memory can't rule out; meshes that break a rule are judged too."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools, num
from costmodel.facts import Facts
from planner.search.bounds import RowBound, fits, leanest_stages, memory_bounds, stage_bounds, with_inner
from planner.search.choices import policies
from planner.search.request import SearchRequest
from planner.search.space import Columns, stage_options

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
            free = num(np.zeros(len(left)))
            lean = memory_bounds(request, facts, with_inner(some, policy=policy, zero_stage=zero))
            rows = RowBound(body_s=free, ends_s=free, **lean)
            for pp in np.unique(some["pp"]).tolist():
                at = np.flatnonzero(some["pp"] == pp)
                if _beyond_layers(request, pp):
                    # Nothing bounds a layout that there is not; its own rule refuses it.
                    possible[left[at]] = True
                    continue
                for bound in stage_bounds(request, pp):
                    possible[left[at]] |= fits(request, bound, pp, some["num_microbatches"][at], rows, at, usable)
    return possible


def _beyond_layers(request: SearchRequest, pp: int) -> bool:
    """Whether pins have stages cut into more chunks than there are layers."""
    most = request.scenario.model.num_layers + _BEYOND_LAYERS
    return any(vpp > 1 and pp * vpp > most for vpp, _, _ in stage_options(request, pp))
