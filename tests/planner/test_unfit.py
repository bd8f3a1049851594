"""Meshes are counted as beyond the memory when every plan of theirs by recipe is, all of them priced."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.rules import legal_mask
from costmodel.table import stage_table
from planner.search.choices import policies
from planner.search.eliminate import eliminate
from planner.search.request import SearchRequest
from planner.search.rows import expand, rows_of
from planner.search.space import mesh_candidates
from planner.search.unfit import unfit_meshes
from tests.scenarios import scenario_of
from tests.searches import request_of

REQUESTS: dict[str, SearchRequest] = {
    "dense": request_of(scenario_of("llama-3-8b", "dgx-a100-40gb", 16, 32, 8192)),
    "experts": request_of(scenario_of("qwen3-30b-a3b", "dgx-a100-80gb", 8, 8, 4096), ("cp=1", "mbs=1")),
    "first dense": request_of(scenario_of("deepseek-v2-lite", "dgx-a100-40gb", 8, 8, 4096), ("cp=1", "mbs=..2")),
    "pinned": request_of(scenario_of("llama-3-8b", "dgx-a100-40gb", 16, 32, 8192), ("recompute=none", "zero_stage=0")),
}


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_no_plan_of_an_unfit_mesh_fits(name: str) -> None:
    request = REQUESTS[name]
    scenario, usable = request.scenario, float(request.scenario.usable_bytes)
    candidates, facts = mesh_candidates(request), Facts.of(request.scenario)
    legal = eliminate(request, candidates).legal
    meshes = {axis: column[legal] for axis, column in candidates.items()}
    count = len(meshes["tp"])
    place, mesh = (index.ravel() for index in np.indices((len(policies(request)), count)))
    rows, of_pair = rows_of(request, meshes, place, mesh)
    table, of_row = expand(request, rows)
    lawful = np.flatnonzero(legal_mask(scenario, table))
    some = table.take(lawful)
    priced = predict(facts, some, stage_table(scenario, some))
    fits = np.zeros(count, dtype=np.bool_)
    fits[mesh[of_pair[of_row[lawful[priced.lack(facts, usable) <= 0.0]]]]] = True
    unfit = unfit_meshes(request, facts, meshes, usable, lambda: False)
    assert unfit is not None
    assert (unfit == ~fits).all()
    assert 0 < unfit.sum() < count
