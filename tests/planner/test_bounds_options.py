"""Relaxations stay below the exact price whatever data parallelism is told to do, and find the leanest sharding."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.table import stage_table
from planner.search.bounds import leanest_stages, row_bounds, with_inner
from planner.search.device_bounds import fits
from planner.search.stage_steps import least_step_time, step_time_bound
from tests.planner.test_bounds import ROUNDING, by_stages, random_plans, rows_from
from tests.scenarios import scenario_of
from tests.searches import request_of

PLANS = 150
CASES = {
    "dense": ("llama-3.1-8b", "dgx-a100-40gb", 128, 240, 8192),
    "experts": ("mixtral-8x22b", "dgx-h100", 128, 1024, 8192),
}
# The framework, and what is pinned: each moves when something is gathered or reduced, or what goes over the wire.
PINNED = {
    "once a step": ("megatron-core", ["gradient_sync=step"]),
    "every micro-batch": ("megatron-core", ["gradient_sync=microbatch"]),
    "FSDP": ("torchtitan", []),
    "kept to the backward pass": ("torchtitan", ["reshard_after=backward"]),
    "kept to the end": ("torchtitan", ["reshard_after=step", "gradient_sync=step"]),
    "nothing ahead": ("torchtitan", ["fsdp_prefetch=0"]),
    "far ahead": ("torchtitan", ["fsdp_prefetch=4"]),
    "ZeRO++": ("deepspeed", ["zero_plus=qwz+hpz+qgz"]),
    "second copy": ("deepspeed", ["zero_plus=hpz"]),
}


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("pinned", sorted(PINNED))
def test_bounds_hold_under_every_option_of_data_parallelism(name: str, pinned: str) -> None:
    framework, pins = PINNED[pinned]
    scenario = scenario_of(*CASES[name]).model_copy(update={"framework": load_framework(framework)})
    request, facts = request_of(scenario, pins), Facts.of(scenario)
    table = random_plans(scenario, seed=20261130, wanted=PLANS, request=request)
    assert len(table) >= PLANS // 3
    exact = predict(facts, table, stage_table(scenario, table))
    rows = rows_from(table)
    bounds = row_bounds(request, facts, rows)
    assert (least_step_time(request, facts, rows, bounds, None) <= exact.step_time_s * ROUNDING).all()
    lean = np.zeros(len(table), dtype=np.bool_)
    for recompute in range(3):
        of = np.flatnonzero(table["recompute"] == recompute)
        if not len(of):
            continue
        some, part, usable = {axis: column[of] for axis, column in rows.items()}, table.take(of), exact.peak_bytes[of]
        any_sharding = row_bounds(
            request, facts, with_inner(some, policy=(recompute, 0), zero_stage=1), however_sharded=True
        )
        for _, bound, at in by_stages(request, part):
            m = part["num_microbatches"][at]
            quick = step_time_bound(facts, [bound], m, any_sharding.take(at), None)[0]
            assert (quick <= exact.step_time_s[of[at]] * ROUNDING).all()
            own = bounds.take(of)
            assert fits([bound], m, own.take(at), usable[at] * ROUNDING).all()
            for zero in leanest_stages(request):
                leaner = row_bounds(request, facts, with_inner(some, policy=(recompute, 0), zero_stage=zero))
                lean[of[at]] |= fits([bound], m, leaner.take(at), usable[at] * ROUNDING)
    assert lean.all()
