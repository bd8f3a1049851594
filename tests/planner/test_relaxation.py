"""Bounds that are worked out as far as somebody looks: the same as all of them at once, in order, and none too high."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from costmodel.arrays import Num
from costmodel.facts import Facts
from planner.search import relaxation
from planner.search.bounds import leanest_stages, memory_bounds, row_bounds, with_inner
from planner.search.choices import policies
from planner.search.eliminate import eliminate
from planner.search.objective import objective_of
from planner.search.relaxation import Relaxation
from planner.search.request import SearchRequest
from planner.search.space import POLICY_AXES, Columns, legal_zero_stages, mesh_candidates
from planner.search.stage_steps import least_step_time
from tests.scenarios import scenario_of
from tests.searches import request_of

REQUESTS: dict[str, SearchRequest] = {
    "dense": request_of(scenario_of("llama-3-8b", "dgx-h100", 16, 32, 8192)),
    "experts": request_of(scenario_of("deepseek-v2-lite", "dgx-a100-40gb", 16, 16, 4096), ("cp=1", "mbs=..2")),
    "cost": request_of(
        scenario_of("llama-3.2-3b", "rtx4090-8", 8, 8, 4096), objective="cost", price_per_device_hour=2.0, min_used=0.3
    ),
    "pinned": request_of(scenario_of("llama-3-8b", "dgx-h100", 32, 64, 8192), ("recompute=full", "zero_stage=1")),
    "too little memory": request_of(scenario_of("llama-3.1-70b", "dgx-a100-80gb", 16, 64, 4096)),
}


def legal_meshes(request: SearchRequest) -> Columns:
    candidates = mesh_candidates(request)
    legal = eliminate(request, candidates).legal
    return {axis: column[legal] for axis, column in candidates.items()}


def at_once(request: SearchRequest, meshes: Columns) -> Num:
    """Bounds ``(policies, meshes)``, every row on its own."""
    facts, usable = Facts.of(request.scenario), float(request.scenario.usable_bytes)
    least = np.full((len(policies(request)), len(meshes["tp"])), np.inf)
    for place, policy in enumerate(policies(request)):
        once = with_inner(meshes, policy=policy, zero_stage=min((1, *legal_zero_stages(request))))
        quick = row_bounds(request, facts, once, however_sharded=True)
        decided = meshes | {axis: once[axis] for axis in POLICY_AXES}
        for zero in leanest_stages(request):
            lean = memory_bounds(request, facts, with_inner(meshes, policy=policy, zero_stage=zero))
            mixed = replace(quick, **lean)
            steps = least_step_time(request, facts, decided, mixed, usable, least_s=False)
            least[place] = np.minimum(least[place], objective_of(request).of_rows(steps, meshes))
    return least


def relaxation_of(request: SearchRequest, **how: Any) -> Relaxation:
    facts, usable = Facts.of(request.scenario), float(request.scenario.usable_bytes)
    late = how.get("late", lambda: False)
    return Relaxation(request, facts, objective_of(request), usable, legal_meshes(request), late)


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_parts_are_all_pairs_that_may_fit_the_least_bound_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaxation, "PAIRS_AT_ONCE", 37)
    request = REQUESTS[name]
    meshes = legal_meshes(request)
    expected, found = at_once(request, meshes), relaxation_of(request)
    values = np.full_like(expected, np.inf)
    parts = list(found.parts())
    for part, following in zip(parts, [*parts[1:], None], strict=False):
        assert np.isinf(values[part.policy, part.mesh]).all(), "no pair comes twice"
        values[part.policy, part.mesh] = part.least
        assert (np.diff(part.least) >= 0).all()
        assert part.later <= (following.least[0] if following else np.inf)
        assert part.later >= part.least[-1] * (1.0 - 1e-9)
    assert found.complete
    assert (np.isfinite(values) == np.isfinite(expected)).all()
    fit = np.isfinite(expected)
    np.testing.assert_allclose(values[fit], expected[fit], rtol=1e-9)
    assert bool(parts) == (name != "too little memory")
    assert found.least() == (parts[0].least[0] if parts else np.inf)


def test_nothing_is_looked_at_beyond_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaxation, "PAIRS_AT_ONCE", 10)
    request = REQUESTS["experts"]
    expected = np.sort(at_once(request, legal_meshes(request)).ravel())
    limit = float(expected[25])
    shown = np.concatenate([part.least for part in relaxation_of(request).parts(lambda: limit)])
    np.testing.assert_allclose(shown, expected[expected <= limit], rtol=1e-9)
    seen: list[int] = []
    full = Relaxation._full

    def counted(self: Relaxation, policy: Any, mesh: Any) -> Num:
        seen.append(len(mesh))
        return full(self, policy, mesh)

    monkeypatch.setattr(Relaxation, "_full", counted)
    for _ in relaxation_of(request).parts(lambda: limit):
        pass
    assert 26 <= sum(seen) < np.isfinite(expected).sum() / 2


def test_what_time_is_over_for_is_left_out_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaxation, "PAIRS_AT_ONCE", 5)
    request = REQUESTS["dense"]
    cut = relaxation_of(request, late=lambda: True)
    shown = sum(len(part.mesh) for part in cut.parts())
    assert not cut.complete
    assert 0 < shown < np.isfinite(at_once(request, legal_meshes(request))).sum()


def test_a_bound_counts_on_nothing_that_a_rule_refuses() -> None:
    """One micro-batch a replica: an interleaved pipeline wants as many as it has devices, so it waits as 1F1B does."""
    request = request_of(scenario_of("llama-3-8b", "dgx-h100", 16, 8, 8192), ("tp=1", "cp=1", "pp=2", "dp=8", "mbs=1"))
    meshes = legal_meshes(request)
    alone = request_of(request.scenario, ("tp=1", "cp=1", "pp=2", "dp=8", "mbs=1", "vpp=1"))
    assert meshes["num_microbatches"].tolist() == [1]
    assert relaxation_of(request).least() == relaxation_of(alone).least() < np.inf
