"""Relaxations never exceed the exact price, and the master never drops a plan that the exact price would keep.

The proof of every answer stands on these two.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.catalog.model_catalog import load_model
from costmodel.facts import Facts
from costmodel.predict import PredictionTable, predict
from costmodel.recompute_modules import modules_code
from costmodel.rules import legal_mask
from costmodel.scenario import Scenario
from costmodel.spec.options import CHOICE_NAMES, MOE_DISPATCHERS, OFFLOADS, usual_options
from costmodel.spec.plan import CP_COMM_TYPES, SCHEDULES
from costmodel.stages import Layout, layers_per_chunk
from costmodel.table import AXES, PlanTable, stage_table
from planner.search.bounds import row_bounds, with_inner
from planner.search.choices import option_choices, option_columns
from planner.search.device_bounds import fits
from planner.search.master import DECISIONS, decisions_of, enumerate_below
from planner.search.objective import Objective
from planner.search.request import SearchRequest
from planner.search.rows import expand
from planner.search.space import ROW_AXES
from planner.search.stage_steps import least_step_time, stage_bounds, stage_steps, step_time_bound
from tests.scenarios import divisors, scenario_of
from tests.searches import every_row, request_of

ROUNDING = 1.0 + 1e-12
PLANS = 2500

# Dense and tied, dense, experts, first layers dense with latent attention, the same with multi-token prediction, few
# KV heads; on nodes with NVLink, PCIe only, a rack that is one domain, a torus, and one device per node.
CASES: dict[str, Any] = {
    "dense-tied": ("llama-3.2-1b", "dgx-h100", 64, 96, 4096),
    "dense": ("llama-3.1-8b", "dgx-a100-40gb", 128, 240, 8192),
    "dense-405b": ("llama-3.1-405b", "gb200-nvl72", 1152, 1152, 8192),
    "dense-pcie": ("llama-3.2-3b", "rtx4090-8", 32, 48, 2048),
    "experts": ("mixtral-8x22b", "dgx-h100", 128, 1024, 8192),
    "experts-torus": ("qwen3-30b-a3b", "tpu-v5p", 64, 64, 4096),
    "experts-pcie": ("gpt-oss-20b", "l40s-8", 32, 64, 4096),
    "first-dense": ("deepseek-v2-lite", "dgx-a100-80gb", 48, 96, 4096),
    "first-dense-mtp": ("deepseek-v3", "h800-8x400g", 512, 3840, 4096),
    "alternating": ("llama-4-maverick-17b-128e", "dgx-h100", 256, 1024, 8192),
    "hybrid": ("nemotron-3-super-120b-a12b-fp8", "dgx-h100", 256, 1024, 8192),
    "first-dense-mtp-rack": ("deepseek-v3", "gb300-nvl72", 288, 1152, 4096),
    "single-boxes": ("llama-3.1-8b", "rtx4090-1", 24, 48, 2048),
    "many-replicas": ("llama-3.1-8b", "dgx-h100", 16384, 16384, 4096),
    "many-replicas-of-experts": ("deepseek-v3", "h800-8x400g", 131072, 16384, 4096),
}

BOUNDED = list(CASES)


def scenario_named(name: str) -> Scenario:
    return scenario_of(*CASES[name])


def random_plans(scenario: Scenario, seed: int, wanted: int, request: SearchRequest | None = None) -> PlanTable:
    """Legal plans drawn from all axes at once, by rejection; small and large degrees alike.

    Args:
        request: whose first choice of options they have, in place of the usual ones.
    """
    random, model, batch = np.random.default_rng(seed), scenario.model, scenario.workload.global_batch_size
    near = max(scenario.cluster.scale_up_devices, scenario.cluster.devices_per_node)
    found: list[PlanTable] = []
    for _ in range(60):
        draws = 60_000

        def among(values: Any, draws: int = draws) -> np.ndarray:
            return random.choice(np.array(list(values), dtype=np.int64), size=draws)

        columns = {
            "tp": among(t for t in divisors(model.num_heads) if t <= near),
            "cp": among([1, 1, 1, 2, 4]),
            "cp_comm_type": among(map(CP_COMM_TYPES.index, scenario.framework.cp_comm_types or ("p2p",))),
            "ep": among(divisors(model.moe.num_experts) if model.moe else [1]),
            "dp": among(d for d in divisors(batch) if d <= scenario.devices),
            "pp": among([1, *range(1, model.num_layers + 1)]),
            "vpp": among([1, 1, 2, 3, 4, 6, 8, 12, 16]),
            "layout": among(range(len(Layout))),
            "zero_stage": among(range(4)),
            "micro_batch_size": among(b for b in divisors(batch) if b <= 16),
            "recompute": among(range(3)),
        }
        columns["etp"] = np.where(among([0, 1]), columns["tp"], 1) if model.moe else np.ones(draws, dtype=np.int64)
        columns["cp_comm_type"] = np.where(columns["cp"] > 1, columns["cp_comm_type"], 0)
        columns["vpp"] = np.where(columns["pp"] > 1, columns["vpp"], 1)
        columns["schedule"] = np.where(columns["vpp"] > 1, SCHEDULES.index("interleaved_1f1b"), SCHEDULES.index("1f1b"))
        node = np.gcd(columns["dp"], near)
        shard = np.where(among([0, 1]), columns["dp"], np.where(node > 1, node, columns["dp"]))
        columns["dp_shard"] = np.where(columns["zero_stage"] == 0, 1, shard)
        columns["dp_replicate"] = columns["dp"] // columns["dp_shard"]
        columns["num_microbatches"] = np.maximum(batch // (columns["dp"] * columns["micro_batch_size"]), 1)
        used = columns["tp"] * columns["cp"] * columns["dp"] * columns["pp"]
        keep = (used <= scenario.devices) & (columns["vpp"] <= np.maximum((model.num_layers + 2) // columns["pp"], 1))
        options = {**columns, "options": np.zeros(draws, dtype=np.int64)}
        options = option_columns(request, options) if request else usual_options(columns)
        columns |= {"recompute_modules": np.zeros(draws, dtype=np.int64), **options}
        table = PlanTable(columns={axis: columns[axis][keep] for axis in AXES})
        shapes = np.unique(np.stack([table["pp"], table["vpp"], table["layout"]], axis=1), axis=0)
        impossible = {
            tuple(shape)
            for shape in shapes.tolist()
            if layers_per_chunk(model.num_layers, shape[0], shape[1], Layout(shape[2])) is None
        }
        here = zip(table["pp"].tolist(), table["vpp"].tolist(), table["layout"].tolist(), strict=True)
        table = table.take(np.array([shape not in impossible for shape in here], dtype=np.bool_))
        found.append(table.take(legal_mask(scenario, table)))
        if sum(map(len, found)) >= wanted:
            break
    return PlanTable.concatenate(found).take(slice(wanted))


@lru_cache(maxsize=16)
def priced_plans(name: str) -> tuple[SearchRequest, Facts, PlanTable, PredictionTable]:
    scenario = scenario_named(name)
    table, facts = random_plans(scenario, seed=20261129, wanted=PLANS), Facts.of(scenario)
    assert len(table) == PLANS
    return SearchRequest(scenario=scenario), facts, table, predict(facts, table, stage_table(scenario, table))


def rows_from(table: PlanTable) -> dict[str, np.ndarray]:
    return {axis: table[axis] for axis in ROW_AXES if axis != "options"} | {"options": table["tp"] * 0}


def by_stages(request: SearchRequest, table: PlanTable) -> list[tuple[int, Any, np.ndarray]]:
    """(pp, stage bound, rows of the table that it is for); every row is for exactly one."""
    parts, seen = [], np.zeros(len(table), dtype=np.int64)
    for pp in np.unique(table["pp"]).tolist():
        for bound in stage_bounds(request, pp):
            own = (table["pp"] == pp) & (table["vpp"] == bound.vpp) & (table["schedule"] == bound.schedule)
            seen += own
            if own.any():
                parts.append((pp, bound, np.flatnonzero(own)))
    assert (seen == 1).all()
    return parts


@pytest.mark.parametrize("name", list(CASES))
def test_the_drawn_plans_reach_into_every_corner(name: str) -> None:
    request, _, table, _ = priced_plans(name)
    near = max(request.scenario.cluster.scale_up_devices, request.scenario.cluster.devices_per_node)
    wide = {"tp": min(2, near), "cp": 2, "pp": 4, "vpp": 3, "dp": 4, "zero_stage": 4, "recompute": 3, "layout": 2}
    for axis, values in wide.items():
        assert len(np.unique(table[axis])) >= values, axis
    if request.scenario.model.moe:
        assert len(np.unique(table["ep"])) >= 3
    assert (table["num_microbatches"] < table["pp"]).any()
    assert (table["num_microbatches"] > 2 * table["pp"]).any()


@pytest.mark.parametrize("name", BOUNDED)
def test_the_time_bound_never_exceeds_the_step_time(name: str) -> None:
    request, facts, table, exact = priced_plans(name)
    bounds, ratios, checked = row_bounds(request, facts, rows_from(table)), [], 0
    for pp, bound, at in by_stages(request, table):
        m = table["num_microbatches"][at]
        least = step_time_bound(facts, [bound], m, bounds.take(at), None)[0]
        assert (least <= exact.step_time_s[at] * ROUNDING).all(), (pp, bound)
        ratios.append(least / exact.step_time_s[at])
        checked += len(at)
    assert checked == PLANS
    # A bound of nothing would be no bound: half of the plans are within two fifths, and the closest within a tenth.
    assert np.median(np.concatenate(ratios)) > 0.6
    assert np.concatenate(ratios).max() > 0.9


@pytest.mark.parametrize("name", list(CASES))
def test_the_memory_bound_never_exceeds_the_peak(name: str) -> None:
    request, facts, table, exact = priced_plans(name)
    bounds, checked, sharp = row_bounds(request, facts, rows_from(table)), 0, 0
    for pp, bound, at in by_stages(request, table):
        m, peak = table["num_microbatches"][at], exact.peak_bytes[at]
        assert np.all(fits([bound], m, bounds.take(at), peak * ROUNDING)), (pp, bound)
        checked += len(at)
        sharp += int((~fits([bound], m, bounds.take(at), 0.7 * peak)).sum())
    assert checked == PLANS
    # Layouts that keep more room on the fullest device count too.
    assert sharp > PLANS // 8


@pytest.mark.parametrize("name", ["experts-pcie", "many-replicas-of-experts"])
def test_with_few_micro_batches_what_comes_once_a_step_counts(name: str) -> None:
    request, facts, table, exact = priced_plans(name)
    rows, few = rows_from(table), table["num_microbatches"] <= 2
    bounds = row_bounds(request, facts, rows)
    without = replace(bounds, end_s=np.zeros(PLANS))
    close, far = (least_step_time(request, facts, rows, some, None) / exact.step_time_s for some in (bounds, without))
    assert few.sum() > PLANS // 50
    assert (close >= far).all()
    assert np.median(close[few]) > 0.9 > np.median(far[few]) + 0.03


ONE_OPTION = [
    *(("offload", code) for code in range(1, len(OFFLOADS))),
    ("recompute_interval", 4),
    ("ep_overlap", 1),
    *(("moe_dispatcher", code) for code in range(len(MOE_DISPATCHERS))),
    ("moe_capacity_factor", 150),
    *(("recompute_modules", modules_code(names)) for names in (["core_attn"], ["moe", "mlp"], ["layernorm"])),
]


@pytest.mark.parametrize(("option", "code"), ONE_OPTION)
@pytest.mark.parametrize("name", ["dense-tied", "experts", "first-dense-mtp", "hybrid"])
@pytest.mark.parametrize("framework", ["megatron-core", "deepspeed", "maxtext"])
def test_bounds_hold_with_every_option(name: str, framework: str, option: str, code: int) -> None:
    _, _, table, _ = priced_plans(name)
    scenario = scenario_named(name).model_copy(update={"framework": load_framework(framework)})
    at = np.arange(0, PLANS, 5)
    table = table.take(at)
    table = PlanTable(columns={**table.columns, option: np.full(len(table), code)})
    request, facts = SearchRequest(scenario=scenario_named(name), also=((option, code),)), Facts.of(scenario)
    exact = predict(facts, table, stage_table(scenario, table))
    own = CHOICE_NAMES.index(option)
    place = next(at for at, choice in enumerate(option_choices(request)) if choice[own] == code)
    rows = rows_from(table) | {"options": np.full(len(table), place)}
    bounds = row_bounds(request, facts, rows)
    for pp, bound, at in by_stages(request, table):
        m = table["num_microbatches"][at]
        least = step_time_bound(facts, [bound], m, bounds.take(at), None)[0]
        assert (least <= exact.step_time_s[at] * ROUNDING).all(), (pp, bound)
        peak = exact.peak_bytes[at]
        assert np.all(fits([bound], m, bounds.take(at), peak * ROUNDING)), (pp, bound)


@pytest.mark.parametrize("name", BOUNDED)
def test_a_row_is_bounded_over_all_its_stage_options_and_kept_when_it_fits(name: str) -> None:
    """Rows of plans that fit stay finite, and below the plan."""
    request, facts, table, exact = priced_plans(name)
    rows = rows_from(table)
    bounds = row_bounds(request, facts, rows)
    least = least_step_time(request, facts, rows, bounds, None)
    assert (least <= exact.step_time_s * ROUNDING).all()
    for usable in np.quantile(exact.peak_bytes, [0.1, 0.5, 0.9]):
        fitting = exact.peak_bytes <= usable
        under = least_step_time(request, facts, rows, bounds, float(usable))
        assert fitting.sum() > PLANS // 20
        assert (under[fitting] <= exact.step_time_s[fitting] * ROUNDING).all()
        assert np.isinf(under).any()
        assert (under >= least).all()


@pytest.mark.parametrize("name", BOUNDED)
def test_stage_1_is_the_quickest_sharding_and_full_sharding_the_leanest(name: str) -> None:
    """What lets a whole mesh be judged by one time and one need, before it is known how it is sharded."""
    request, facts, table, exact = priced_plans(name)
    meshes = rows_from(table)
    quick, lean, usable = np.full(PLANS, np.inf), np.zeros(PLANS, dtype=np.bool_), exact.peak_bytes * ROUNDING
    for recompute in range(3):
        of = np.flatnonzero(table["recompute"] == recompute)
        some = {axis: column[of] for axis, column in meshes.items()}
        rows = with_inner(some, policy=(recompute, 0), zero_stage=1)
        bounds = row_bounds(request, facts, rows, however_sharded=True)
        quick[of] = least_step_time(request, facts, rows, bounds, None)
        part = table.take(of)
        for zero in (2, 3):
            leaner = row_bounds(request, facts, with_inner(some, policy=(recompute, 0), zero_stage=zero))
            for _, bound, at in by_stages(request, part):
                m = part["num_microbatches"][at]
                lean[of[at]] |= fits([bound], m, leaner.take(at), usable[of[at]])
    assert (quick <= exact.step_time_s * ROUNDING).all()
    assert lean.all()


@pytest.mark.parametrize("name", ["dense", "first-dense-mtp"])
def test_the_bound_over_all_cp_exchanges_is_that_of_the_cheapest(name: str) -> None:
    """Layers that predict further tokens sit at the end of the model and exchange keys and values too."""
    scenario = scenario_named(name)
    facts = Facts.of(scenario)
    rows = rows_from(random_plans(scenario, seed=1, wanted=500))
    each = [
        row_bounds(request_of(scenario, [f"cp_comm={kind}"]), facts, rows) for kind in scenario.framework.cp_comm_types
    ]
    every = row_bounds(SearchRequest(scenario=scenario), facts, rows)
    cheapest = np.minimum.reduce([one.body_s for one in each])
    assert (every.body_s <= cheapest).all()
    assert (every.ends_s <= np.minimum.reduce([one.ends_s for one in each])).all()
    assert any((one.body_s > cheapest).any() for one in each)


# -- the master's integer tables -------------------------------------------------------------------------------------

MASTERS: dict[str, Any] = {
    "dense": (scenario_of("llama-3.2-1b", "dgx-h100", 16, 16, 4096), ()),
    "tight": (scenario_of("llama-3.1-8b", "dgx-a100-40gb", 8, 8, 8192), ()),
    "experts": (scenario_of("qwen3-30b-a3b", "dgx-h100", 16, 2, 4096), ("ep=8..", "pp=2..")),
    "first-dense-mtp": (
        scenario_of(load_model("deepseek-v3").model_copy(update={"num_layers": 8}), "h800-8x400g", 32, 8, 4096),
        ("tp=8", "pp=2.."),
    ),
    "lopsided": (scenario_of("llama-2-7b", "dgx-a100-80gb", 24, 24, 4096), ("pp=6,12", "vpp=1,2")),
    "old-version": (scenario_of("llama-3.2-3b", "rtx4090-8", 8, 8, 4096, version="0.13"), ()),
}


@pytest.mark.parametrize("kind", ["step_time", "cost", "fewest_devices"])
@pytest.mark.parametrize("name", list(MASTERS))
def test_the_master_lists_every_plan_that_the_exact_price_puts_under_the_limit(name: str, kind: Any) -> None:
    scenario, pins = MASTERS[name]
    request = request_of(scenario, pins, objective=kind, price_per_device_hour=2.0, min_used=0.9)
    facts, usable = Facts.of(scenario), float(scenario.usable_bytes)
    rows = every_row(request)
    table, of_row = expand(request, rows)
    legal = np.flatnonzero(legal_mask(scenario, table))
    table, of_row = table.take(legal), of_row[legal]
    exact = predict(facts, table, stage_table(scenario, table))
    objective = Objective(kind=kind, price=2.0)
    values = objective.of_plans(exact.step_time_s, table)
    fitting = exact.peak_bytes <= usable
    decided = np.array(decisions_of(rows, table, of_row))
    bounds, chosen = row_bounds(request, facts, rows), []
    for rank in (0, 7, 60):
        limit = float(np.sort(values[fitting])[rank])
        limits = objective.step_time_limits(limit, rows)
        listed = enumerate_below(request, facts, rows, bounds, limits, usable, time.monotonic() + 60.0)
        assert listed.complete
        solutions = {tuple(row) for row in listed.as_rows()}
        assert len(solutions) == len(listed)
        below = {tuple(row) for row in decided[fitting & (values <= limit)].tolist()}
        assert len(below) > rank // 12
        assert below <= solutions
        chosen.append(len(solutions))
    # And it does choose: the tighter the limit, the fewer, and never all there is.
    assert chosen == sorted(chosen)
    assert chosen[0] < len(np.unique(decided, axis=0))


@pytest.mark.parametrize("name", list(MASTERS))
def test_the_master_lists_what_lies_on_its_limit_or_below_and_nothing_else(name: str) -> None:
    scenario, pins = MASTERS[name]
    request = request_of(scenario, pins)
    facts, rows = Facts.of(scenario), every_row(request)
    bounds = row_bounds(request, facts, rows)
    # Rules on stages are the master's too: of its decisions only those with a legal layout can be listed.
    table, of_row = expand(request, rows)
    legal = np.flatnonzero(legal_mask(scenario, table))
    lawful = set(map(tuple, decisions_of(rows, table.take(legal), of_row[legal])))
    for share in (1.0, 0.5):
        usable = share * float(scenario.usable_bytes)
        steps = stage_steps(request, facts, rows, bounds, usable)
        columns = {axis: rows[axis][steps.row] for axis in ROW_AXES} | {"vpp": steps.vpp, "schedule": steps.schedule}
        decided = list(zip(*(columns[axis].tolist() for axis in DECISIONS), strict=True))
        mine = np.isfinite(steps.step_time_s) & np.array([one in lawful for one in decided])
        times = np.sort(steps.step_time_s[mine])
        for limit in times[[0, 3, 10, 30, 100]].tolist() if len(times) > 100 else times[:1].tolist():
            limits = np.full(len(rows["tp"]), limit)
            listed = enumerate_below(request, facts, rows, bounds, limits, usable, time.monotonic() + 60.0)
            assert listed.complete
            wanted = {decided[place] for place in np.flatnonzero(mine & (steps.step_time_s <= limit))}
            assert set(map(tuple, listed.as_rows())) == wanted


@pytest.mark.parametrize("kind", ["step_time", "cost", "fewest_devices"])
def test_a_limit_on_the_objective_is_a_limit_on_the_step_time(kind: Any) -> None:
    random = np.random.default_rng(3)
    objective = Objective(kind=kind, price=3.0)
    used, seconds = random.integers(1, 64, 4000), random.lognormal(1.0, 2.0, 4000)
    rows = {"tp": used, "cp": np.ones_like(used), "pp": np.ones_like(used), "dp": np.ones_like(used)}
    values = objective.of_rows(seconds, rows)
    for limit in np.quantile(values, [0.01, 0.3, 0.9]):
        under = seconds <= objective.step_time_limits(float(limit), rows) * (1 + 1e-9)
        assert (under >= (values <= limit)).all()
        assert (under[values > limit * (1 + 1e-9)] == 0).all()
