"""The whole search against an oracle that lists every plan in plain loops and prices all of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from costmodel.checker import check_plan
from costmodel.errors import InvalidInput
from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.rules import legal_mask
from costmodel.scenario import Scenario
from costmodel.spec.options import MOE_DISPATCHERS
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES, Plan
from costmodel.stages import Layout, layers_per_chunk
from costmodel.table import PlanTable, stage_table
from planner.search.answer import answer_of
from planner.search.layouts import freedom
from planner.search.request import SearchRequest
from planner.search.solve import Outcome, Search
from tests.scenarios import divisors, scenario_of
from tests.searches import request_of

FAMILY = ("tp", "cp", "pp", "dp", "ep", "etp", "micro_batch_size", "num_microbatches", "schedule")
Row = dict[str, int]

# (model, cluster, devices, global batch, sequence length): dense and tied; a batch with a factor 3; a quarter of the
# memory; experts everywhere; experts after a dense layer, latent attention; PCIe boxes; a rack as one domain.
SMALL = {
    "dense": ("llama-3.2-1b", "dgx-h100", 16, 16, 4096),
    "batch-of-12": ("llama-3.1-8b", "dgx-a100-80gb", 24, 12, 2048),
    "tight": ("llama-3.1-8b", "dgx-a100-40gb", 8, 8, 8192),
    "experts": ("qwen3-30b-a3b", "dgx-h100", 16, 2, 4096),
    "first-layer-dense": ("deepseek-v2-lite", "dgx-h100", 8, 8, 4096),
    "pcie": ("llama-3.2-3b", "rtx4090-8", 8, 8, 4096),
    "rack": ("llama-3.1-8b", "gb200-nvl72", 36, 18, 4096),
}


@pytest.fixture(autouse=True)
def by_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle lists layouts by recipe alone; chosen ones have one of their own (test_layouts_search.py)."""
    monkeypatch.setattr(freedom, "lays_freely", lambda _: False)
    monkeypatch.setattr(freedom, "recomputes_partly", lambda _: False)


def small(name: str) -> Scenario:
    return scenario_of(*SMALL[name])


def found_by(request: SearchRequest) -> Outcome:
    return Search(request).run()


def answered(request: SearchRequest) -> dict[str, Any]:
    return answer_of(request, Facts.of(request.scenario), found_by(request))


# -- the oracle: nothing below imports the space, the bounds, the rows or the master ---------------------------------


def meshes_of(scenario: Scenario, least: int) -> Iterator[Row]:
    """Every mesh that devices and batch allow, as the documentation of the space has it."""
    model, devices = scenario.model, scenario.devices
    batch, seq = scenario.workload.global_batch_size, scenario.workload.seq_len
    near = max(scenario.cluster.scale_up_devices, scenario.cluster.devices_per_node)
    tps = [t for t in divisors(model.num_heads) if t <= near]
    cps = [c for c in divisors(seq) if c == 1 or (seq % (2 * c) == 0 and seq // c >= 512)]
    eps = divisors(model.moe.num_experts) if model.moe else [1]
    sizes = [size for size in divisors(batch) if size <= 64]
    for tp, cp, pp, dp in product(tps, cps, range(1, model.num_layers + 1), divisors(batch)):
        if not least <= tp * cp * pp * dp <= devices:
            continue
        for ep, etp, size in product(eps, sorted({1, tp}) if model.moe else [1], sizes):
            if ep * etp <= tp * cp * dp and size * dp <= batch:
                yield {
                    "tp": tp,
                    "cp": cp,
                    "pp": pp,
                    "dp": dp,
                    "ep": ep,
                    "etp": etp,
                    "micro_batch_size": size,
                    "num_microbatches": batch // (size * dp),
                }


def inner_of(scenario: Scenario, mesh: Row, shards: tuple[int, ...]) -> Iterator[Row]:
    """Every way to fill in one mesh; ``shards`` are shard sizes beyond the default ones."""
    layers, pp, dp = scenario.model.num_layers, mesh["pp"], mesh["dp"]
    node = [s for s in divisors(dp) if 1 < s < dp and mesh["tp"] * mesh["cp"] * s <= scenario.cluster.scale_up_devices]
    sharded = {dp, *node[-1:], *(s for s in shards if dp % s == 0 and (s > 1 or dp == 1))}
    sharding = [(0, 1), *product((1, 2, 3), sorted(sharded))]
    stages = [
        (vpp, layout)
        for vpp in range(1, min(16, max(1, (layers + 2) // pp)) + 1 if pp > 1 else 2)
        for layout in ((0, 1, 2, 3) if scenario.model.num_mtp_layers else (0, 1, 2))
        if layers_per_chunk(layers, pp, vpp, Layout(layout)) is not None
    ]
    exchanges = range(len(CP_COMM_TYPES)) if mesh["cp"] > 1 else (0,)
    # Megatron-Core's overlap of dispatch and combine is tried wherever something is dispatched.
    overlaps = (0, 1) if mesh["ep"] > 1 else (0,)
    # The dispatcher is the one that the framework's file has first.
    known = scenario.framework.known_moe_dispatchers() if scenario.model.moe else None
    dispatcher = MOE_DISPATCHERS.index(known[0]) if known else 0
    for (zero, shard), (vpp, layout), exchange, recompute, overlap in product(
        sharding, stages, exchanges, range(3), overlaps
    ):
        yield mesh | {
            "zero_stage": zero,
            "dp_shard": shard,
            "dp_replicate": dp // shard,
            "vpp": vpp,
            "layout": layout,
            "schedule": SCHEDULES.index("interleaved_1f1b" if vpp > 1 else "1f1b"),
            "cp_comm_type": exchange,
            "cp_a2a_degree": traders(scenario, mesh["tp"], mesh["cp"], CP_COMM_TYPES[exchange]),
            "recompute": recompute,
            "ep_overlap": overlap,
            "moe_dispatcher": dispatcher,
        }


def traders(scenario: Scenario, tp: int, cp: int, exchange: str) -> int:
    """Ranks that exchange heads: none, all, or the most that both divide them and are near."""
    if exchange != "a2a+p2p":
        return cp if exchange == "a2a" else 1
    model, near = scenario.model, scenario.cluster.scale_up_devices
    between = [degree for degree in divisors(cp) if 1 < degree < cp]
    fair = [d for d in between if not model.num_heads % (tp * d) and (model.mla or not model.num_kv_heads % (tp * d))]
    return max([d for d in fair if tp * d <= near] or fair[:1] or between[:1] or [1])


@dataclass(frozen=True, kw_only=True, eq=False)
class Oracle:
    """Every plan of a space, legal or not, and the price of each legal one."""

    scenario: Scenario
    rows: list[Row]
    legal: np.ndarray
    step_time_s: np.ndarray
    peak_bytes: np.ndarray

    @property
    def fits(self) -> np.ndarray:
        return self.legal & (self.peak_bytes <= self.scenario.usable_bytes)

    def best(self, key: Callable[[float, int], Any], keep: Callable[[Row], bool] = lambda _: True) -> list[Any]:
        """(family, key, row) of the best plan of each family, best first."""
        families: dict[tuple[int, ...], tuple[Any, ...]] = {}
        for index in np.flatnonzero(self.fits).tolist():
            row = self.rows[index]
            if not keep(row):
                continue
            used = devices_of(row)
            # What differs by rounding alone is equal.
            seconds = float(f"{self.step_time_s[index]:.12g}")
            order = (key(seconds, used), used, float(self.peak_bytes[index]))
            family = tuple(row[axis] for axis in FAMILY)
            if family not in families or order < families[family][0]:
                families[family] = (order, row)
        return sorted((order, family, row) for family, (order, row) in families.items() if family)


def devices_of(row: Row) -> int:
    return row["tp"] * row["cp"] * row["pp"] * row["dp"]


@lru_cache(maxsize=16)
def oracle_of(name: str, least: int | None = None, shards: tuple[int, ...] = ()) -> Oracle:
    scenario = small(name)
    least = -(-9 * scenario.devices // 10) if least is None else least
    rows = [row for mesh in meshes_of(scenario, least) for row in inner_of(scenario, mesh, shards)]
    table = PlanTable.of_rows(rows)
    legal = legal_mask(scenario, table)
    step, peak = np.full(len(rows), np.inf), np.full(len(rows), np.inf)
    lawful = table.take(legal)
    prices = predict(Facts.of(scenario), lawful, stage_table(scenario, lawful))
    step[legal], peak[legal] = prices.step_time_s, prices.peak_bytes
    return Oracle(scenario=scenario, rows=rows, legal=legal, step_time_s=step, peak_bytes=peak)


def default_least(scenario: Scenario) -> int:
    return -(-9 * scenario.devices // 10)


# -- the oracle itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(SMALL))
def test_the_oracles_idea_of_legal_is_the_checkers(name: str) -> None:
    oracle = oracle_of(name)
    random = np.random.default_rng(7)
    judged = {True: 0, False: 0}
    for index in random.choice(len(oracle.rows), size=400).tolist():
        row = oracle.rows[index]
        plan = bare_plan(oracle.scenario, row)
        assert (not check_plan(plan, oracle.scenario)) == bool(oracle.legal[index]), row
        judged[bool(oracle.legal[index])] += 1
    assert min(judged.values()) > 50, judged


def bare_plan(scenario: Scenario, row: Row) -> Plan:
    """The row as a plan, without the validation that would already refuse some of the illegal ones."""
    chunks = layers_per_chunk(scenario.model.num_layers, row["pp"], row["vpp"], Layout(row["layout"]))
    assert chunks is not None
    axes = ("tp", "cp", "ep", "etp", "dp", "dp_replicate", "dp_shard", "pp", "vpp", "zero_stage")
    return Plan.model_construct(
        **{axis: row[axis] for axis in (*axes, "micro_batch_size", "num_microbatches")},  # type: ignore[arg-type]
        cp_comm_type=CP_COMM_TYPES[row["cp_comm_type"]],
        cp_a2a_degree=row.get("cp_a2a_degree", 1),
        sequence_parallel=row["tp"] > 1,
        global_batch_size=scenario.workload.global_batch_size,
        seq_len=scenario.workload.seq_len,
        devices_used=devices_of(row),
        schedule=SCHEDULES[row["schedule"]],
        layers_per_stage=tuple(sum(device) for device in chunks),
        layers_per_chunk=chunks if row["vpp"] > 1 else None,
        recompute=RECOMPUTES[row["recompute"]],
        ep_overlap=bool(row.get("ep_overlap", 0)),
        recomputed_layers_per_stage=(0,) * row["pp"],
        precision=scenario.workload.precision.name,
        optimizer=scenario.workload.optimizer.name,
        framework=scenario.framework.name,
        framework_version=scenario.framework.version,
    )


# -- the best plans --------------------------------------------------------------------------------------------------

PRICE = 2.5
KEYS: dict[str, Callable[[float, int], Any]] = {
    "step_time": lambda seconds, used: seconds,
    "cost": lambda seconds, used: PRICE * used * seconds / 3600.0,
    "fewest_devices": lambda seconds, used: (used, seconds),
}


def assert_same(request: SearchRequest, outcome: Outcome, expected: list[Any]) -> None:
    """The outcome's list is the oracle's: families in order, and their values."""
    assert outcome.proven
    assert outcome.bound == outcome.best[0].objective
    wanted = expected[: request.top]
    assert [plan.family for plan in outcome.best] == [family for _, family, _ in wanted]
    for plan, ((key, used, peak), _, _) in zip(outcome.best, wanted, strict=True):
        found = (plan.devices_used, plan.step_time_s) if isinstance(key, tuple) else plan.objective
        assert found == pytest.approx(key, rel=1e-11)
        assert plan.devices_used == used
        assert plan.peak_bytes == pytest.approx(peak, rel=1e-12)
        assert plan.peak_bytes <= request.scenario.usable_bytes


@pytest.mark.parametrize("objective", ["step_time", "cost"])
@pytest.mark.parametrize("name", list(SMALL))
def test_the_best_plans_are_those_of_the_whole_space(name: str, objective: str) -> None:
    oracle = oracle_of(name)
    expected = oracle.best(KEYS[objective])
    request = request_of(oracle.scenario, objective=objective, price_per_device_hour=PRICE, top=20)
    assert len(expected) > request.top
    assert_same(request, found_by(request), expected)


@pytest.mark.parametrize("name", ["tight", "first-layer-dense", "pcie", "dense"])
def test_fewest_devices_are_fewest_and_then_fastest(name: str) -> None:
    oracle = oracle_of(name, least=1)
    request = request_of(oracle.scenario, objective="fewest_devices", top=20)
    outcome = found_by(request)
    assert_same(request, outcome, oracle.best(KEYS["fewest_devices"]))
    used = [plan.devices_used for plan in outcome.best]
    assert used == sorted(used)


def test_fewer_devices_than_all_are_found_where_the_user_allows_them() -> None:
    oracle = oracle_of("batch-of-12", least=8)
    request = request_of(oracle.scenario, min_used=1 / 3, objective="cost", price_per_device_hour=PRICE, top=20)
    outcome = found_by(request)
    assert_same(request, outcome, oracle.best(KEYS["cost"]))
    assert {plan.devices_used for plan in outcome.best} != {24}


def in_(**axes: Any) -> Callable[[Row], bool]:
    """Rows whose axes lie in the sets given."""
    return lambda row: all(row[axis] in values for axis, values in axes.items())


@pytest.mark.parametrize(
    ("name", "pins", "forbids", "keep"),
    [
        ("dense", ("tp=2",), (), in_(tp={2})),
        ("dense", ("pp=2,4", "recompute=none,full"), (), in_(pp={2, 4}, recompute={0, 2})),
        ("dense", ("vpp=3..4",), ("zero_stage=0",), in_(vpp={3, 4}, zero_stage={1, 2, 3})),
        ("dense", ("dp=..4", "pp=2.."), (), lambda row: row["dp"] <= 4 and row["pp"] >= 2),
        (
            "dense",
            ("num_microbatches=4..8",),
            ("schedule=1f1b",),
            lambda row: 4 <= row["num_microbatches"] <= 8 and row["vpp"] > 1,
        ),
        ("batch-of-12", ("mbs=3,6",), ("tp=1",), lambda r: r["micro_batch_size"] in {3, 6} and r["tp"] > 1),
        ("batch-of-12", ("cp=2", "cp_comm=all_gather,a2a"), (), in_(cp={2}, cp_comm_type={1, 2})),
        ("tight", (), ("recompute=full", "zero=2,3"), in_(recompute={0, 1}, zero_stage={0, 1})),
        ("experts", ("ep=8,16",), ("etp=1",), lambda row: row["ep"] in {8, 16} and row["etp"] > 1),
        (
            "first-layer-dense",
            ("devices=8", "ep=4.."),
            ("pp=1",),
            lambda r: devices_of(r) == 8 and r["ep"] >= 4 and r["pp"] > 1,
        ),
        ("rack", ("dp_replicate=1", "zero_stage=3"), (), in_(dp_replicate={1}, zero_stage={3})),
    ],
)
def test_pins_and_forbids_cut_the_space_and_nothing_else(
    name: str, pins: tuple[str, ...], forbids: tuple[str, ...], keep: Callable[[Row], bool]
) -> None:
    oracle = oracle_of(name)
    expected = oracle.best(KEYS["step_time"], keep)
    assert expected
    request = request_of(oracle.scenario, pins, forbids, top=10)
    assert_same(request, found_by(request), expected)


def test_a_pin_outside_the_default_space_is_searched() -> None:
    oracle = oracle_of("dense", shards=(4,))
    request = request_of(oracle.scenario, ("dp_shard=4", "dp=16"), top=10)
    outcome = found_by(request)
    assert_same(request, outcome, oracle.best(KEYS["step_time"], in_(dp_shard={4}, dp={16})))
    assert {plan.row["dp_replicate"] for plan in outcome.best} == {4}


def test_values_and_ranges_in_one_pin_are_all_searched() -> None:
    oracle = oracle_of("dense")
    request = request_of(oracle.scenario, ("dp=1,2..8",), top=10)
    assert_same(request, found_by(request), oracle.best(KEYS["step_time"], lambda row: row["dp"] <= 8))


def test_more_plans_asked_for_than_there_are() -> None:
    oracle = oracle_of("dense")
    expected = oracle.best(KEYS["step_time"])
    request = request_of(oracle.scenario, top=1000)
    outcome = found_by(request)
    assert len(outcome.best) == len(expected) < 1000
    assert_same(request, outcome, expected)


@pytest.mark.parametrize("name", list(SMALL))
def test_every_plan_that_is_returned_is_legal_and_fits(name: str) -> None:
    scenario = small(name)
    plans = answered(request_of(scenario, top=20))["plans"]
    assert len(plans) == 20
    for entry in plans:
        assert check_plan(Plan.model_validate(entry["plan"]), scenario) == ()
        memory = entry["prediction"]["memory"]
        assert memory["peak_bytes"] <= memory["usable_bytes"] == scenario.usable_bytes


def test_no_two_plans_of_a_list_are_the_same_mesh_under_the_same_schedule() -> None:
    best = found_by(request_of(small("first-layer-dense"), top=60)).best
    assert len({plan.family for plan in best}) == 60
    assert [plan.order for plan in best] == sorted(plan.order for plan in best)


# -- the same answer again -------------------------------------------------------------------------------------------


def without_clock(answer: dict[str, Any]) -> dict[str, Any]:
    return answer | {"search": {key: value for key, value in answer["search"].items() if key != "elapsed_s"}}


@pytest.mark.parametrize("name", ["tight", "experts"])
def test_the_same_request_gets_the_same_answer_to_the_last_bit(name: str) -> None:
    first, second = (without_clock(answered(request_of(small(name)))) for _ in range(2))
    assert json.dumps(first) == json.dumps(second)


def test_another_process_gives_the_same_answer(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    program = (
        "import json; from tests.planner.test_search import *\n"
        "print(json.dumps(without_clock(answered(request_of(small('tight'))))))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=pytestconfig.rootpath, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == json.dumps(without_clock(answered(request_of(small("tight")))))


def test_the_seed_moves_the_solver_and_not_the_answer() -> None:
    one, other = (found_by(request_of(small("dense"), seed=seed)) for seed in (0, 12345))
    assert [plan.row for plan in one.best] == [plan.row for plan in other.best]


# -- the deadline ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question", [("llama-3.1-405b", "dgx-h100", 16384, 2048, 8192), ("qwen3-30b-a3b", "dgx-h100", 16, 4, 4096)]
)
def test_a_search_cut_short_says_so_and_its_bound_is_true(question: tuple[Any, ...]) -> None:
    scenario = scenario_of(*question)
    started = time.monotonic()
    cut = answered(request_of(scenario, max_seconds=0.001))
    elapsed = time.monotonic() - started
    whole = answered(request_of(scenario))
    assert elapsed < 10.0
    assert cut["status"] in {"feasible", "unknown"}
    assert not cut["proven_top_k"]
    assert whole["status"] == "optimal"
    assert 0.0 < cut["bound"] <= whole["best"]
    if cut["status"] == "feasible":
        assert cut["best"] >= whole["best"]
        assert cut["gap"] == pytest.approx((cut["best"] - cut["bound"]) / cut["best"])
        for entry in cut["plans"]:
            assert check_plan(Plan.model_validate(entry["plan"]), scenario) == ()


# -- when nothing is left --------------------------------------------------------------------------------------------


def conflict_of(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    assert answer["status"] == "infeasible"
    assert answer["plans"] == []
    assert answer["best"] is answer["bound"] is answer["gap"] is None
    return {entry["rule"]: entry for entry in answer["infeasibility"]["conflict"]}


def test_70b_on_16_a100_does_not_fit_and_the_reason_shows_the_bytes() -> None:
    """70.6e9 parameters in bf16 with fp32 gradients and AdamW are 18 bytes each: 1,183 GiB, 73.9 on each of 16."""
    conflict = conflict_of(answered(request_of(scenario_of("llama-3.1-70b", "dgx-a100-80gb", 16, 64, 4096))))
    assert next(iter(conflict)) == "memory"
    reason = conflict["memory"]["reason"]
    assert "73.9 GiB of it parameters, gradients and optimizer" in reason
    assert "of 80.0 GiB" in reason or "of 79." in reason


def test_a_prime_batch_over_too_few_of_its_divisors_is_refused_for_the_batch() -> None:
    scenario = scenario_of("llama-3.2-1b", "dgx-h100", 16, 13, 4096)
    conflict = conflict_of(answered(request_of(scenario, ("tp=1", "pp=1", "cp=1"))))
    assert "batch_divisible" in conflict
    assert conflict["batch_divisible"]["reason"] == (
        "global_batch_size 13 % (micro_batch_size * dp) 16 = 13, must be 0"
    )


def test_a_tp_that_divides_no_heads_is_refused_with_the_heads() -> None:
    conflict = conflict_of(answered(request_of(small("dense"), ("tp=3",))))
    assert conflict["heads_divisible_by_tp"]["reason"] == "num_heads 32 % tp 3 = 2, must be 0"
    assert (
        conflict["heads_divisible_by_tp"]["meshes"]
        == answered(request_of(small("dense"), ("tp=3",)))["eliminated"]["heads_divisible_by_tp"]
    )


def test_a_mesh_beyond_the_devices_names_the_devices() -> None:
    conflict = conflict_of(answered(request_of(small("dense"), ("tp=32",))))
    assert list(conflict) == ["devices", "pin tp=32"]
    assert conflict["devices"]["reason"] == "tp 32 = 32 devices at least, where there are 16"


def test_of_the_rules_that_stop_everything_the_one_that_reads_the_fewest_axes_is_named() -> None:
    answer = answered(request_of(small("dense"), ("tp=3",)))
    as_many = [rule for rule, count in answer["eliminated"].items() if count == answer["search"]["meshes"]]
    assert set(as_many) > {"heads_divisible_by_tp", "idle_devices_are_whole_nodes"}
    assert list(conflict_of(answer)) == ["heads_divisible_by_tp", "pin tp=3"]


def test_a_pinned_schedule_that_fits_no_chunking_names_its_rule() -> None:
    pins = ("schedule=interleaved_1f1b", "vpp=1..1")
    conflict = conflict_of(answered(request_of(small("dense"), (*pins, "pp=2.."))))
    assert "needs vpp > 1" in conflict["schedule_fits_chunks"]["reason"]


def test_what_does_not_fit_is_said_also_after_the_deadline() -> None:
    answer = answered(request_of(with_usable("tight", 2.0), max_seconds=1e-6))
    assert answer["status"] == "infeasible"
    assert answer["eliminated"]["memory"] > 0
    assert answer["infeasibility"]["conflict"][0]["rule"] == "memory"
    # Nothing was left uncounted.
    assert not any("deadline" in said for said in answer["warnings"])


def test_pins_that_leave_no_inner_choice_are_named() -> None:
    answer = answered(request_of(small("dense"), ("vpp=2",), ("schedule=interleaved_1f1b",)))
    assert answer["eliminated"]["pins"] > 100
    assert list(conflict_of(answer)) == ["pin vpp=2", "forbid schedule=interleaved_1f1b"]


def test_experts_of_a_dense_model_are_refused_by_name() -> None:
    conflict = conflict_of(answered(request_of(small("dense"), ("ep=2",))))
    assert "llama-3.2-1b has 0 experts" in conflict["experts_need_moe"]["reason"]


# -- what was eliminated ---------------------------------------------------------------------------------------------


def stand_ins(scenario: Scenario, least: int) -> Iterator[Row]:
    """Meshes that stand for a batch which no data-parallel degree of the devices divides: the largest degree."""
    model, batch, seq = scenario.model, scenario.workload.global_batch_size, scenario.workload.seq_len
    near = max(scenario.cluster.scale_up_devices, scenario.cluster.devices_per_node)
    tps = [t for t in divisors(model.num_heads) if t <= near]
    cps = [c for c in divisors(seq) if c == 1 or (seq % (2 * c) == 0 and seq // c >= 512)]
    eps = divisors(model.moe.num_experts) if model.moe else [1]
    for tp, cp, pp in product(tps, cps, range(1, model.num_layers + 1)):
        unit = tp * cp * pp
        degrees = [dp for dp in range(1, scenario.devices + 1) if least <= unit * dp <= scenario.devices]
        if not degrees or any(batch % dp == 0 for dp in degrees):
            continue
        dp = degrees[-1]
        for ep, etp, size in product(eps, sorted({1, tp}) if model.moe else [1], divisors(batch)):
            if ep * etp <= tp * cp * dp and size <= 64 and (size * dp <= batch or size == 1):
                yield dict(zip(FAMILY, (tp, cp, pp, dp, ep, etp, size, max(batch // (size * dp), 1)), strict=False))


def recount(oracle: Oracle) -> dict[str, int]:
    """Meshes by every rule that their plainest plan breaks, and those of which no legal plan fits."""
    scenario, counts, lawful = oracle.scenario, dict[str, int](), set[tuple[int, ...]]()
    least = default_least(scenario)
    for mesh in (*meshes_of(scenario, least), *stand_ins(scenario, least)):
        plain = mesh | dict.fromkeys(("vpp", "dp_shard", "schedule"), 1)
        plain |= dict.fromkeys(("layout", "zero_stage", "recompute", "cp_comm_type"), 0) | {"dp_replicate": mesh["dp"]}
        broken = {violation.rule for violation in check_plan(bare_plan(scenario, plain), scenario)}
        for rule in broken:
            counts[rule] = counts.get(rule, 0) + 1
        if not broken:
            lawful.add(tuple(mesh.values()))
    fitting = {tuple(oracle.rows[index][axis] for axis in FAMILY[:-1]) for index in np.flatnonzero(oracle.fits)}
    return counts | ({"memory": len(lawful - fitting)} if lawful - fitting else {})


@pytest.mark.parametrize("name", list(SMALL))
def test_eliminated_meshes_are_counted_under_every_rule_that_they_break(name: str) -> None:
    outcome = found_by(request_of(small(name)))
    assert outcome.elimination.counts == recount(oracle_of(name))


def test_a_mesh_that_no_inner_choice_saves_counts_under_the_rule_that_refuses_it_and_no_other() -> None:
    """All-to-all needs heads for every rank of tp and cp; 8 KV heads are the fewer."""
    scenario, expected = small("dense"), 0
    for mesh in meshes_of(scenario, default_least(scenario)):
        whole_nodes = devices_of(mesh) % 8 == 0
        expected += mesh["cp"] > 1 and whole_nodes and 8 % (mesh["tp"] * mesh["cp"]) != 0
    counts = found_by(request_of(scenario, ("cp=2..", "cp_comm=a2a"))).elimination.counts
    assert counts == {"a2a_kv_heads_divisible_by_cp": expected}
    assert expected > 10


def test_a_mesh_whose_leanest_plan_recomputes_selectively_is_not_counted_as_too_big() -> None:
    """One layer and one micro-batch per stage: full recompute keeps its workspace and saves nothing."""
    scenario = with_usable("dense", 61.88)
    answer = answered(request_of(scenario, ("tp=1", "cp=1", "pp=16", "mbs=16")))
    assert answer["status"] == "optimal"
    assert {entry["plan"]["recompute"] for entry in answer["plans"]} == {"selective"}
    assert answer["eliminated"] == {}


def test_a_mesh_whose_leanest_plan_has_more_chunks_is_not_counted_as_too_big() -> None:
    """With a leading dense layer more chunks can put it beside fewer experts."""
    scenario = scenario_of("deepseek-v2-lite", "dgx-a100-40gb", 12, 3, 4096)
    free = scenario.cluster.accelerator.memory_bytes - int(24.85 * 2**30)
    tight = Scenario(**{field: getattr(scenario, field) for field in Scenario.model_fields} | {"min_free_bytes": free})
    pins = ("tp=4", "cp=1", "pp=3", "dp=1", "ep=4", "etp=1", "mbs=1")
    answer = answered(request_of(tight, pins, min_used=0.5))
    assert answer["status"] == "optimal"
    assert min(entry["plan"]["vpp"] for entry in answer["plans"]) > 1
    assert "memory" not in answer["eliminated"]


# -- what must hold between two requests -----------------------------------------------------------------------------


def with_usable(name: str, usable_gib: float) -> Scenario:
    scenario = small(name)
    free = scenario.cluster.accelerator.memory_bytes - int(usable_gib * 2**30)
    return Scenario(**{field: getattr(scenario, field) for field in Scenario.model_fields} | {"min_free_bytes": free})


@pytest.mark.parametrize("name", ["dense", "tight", "first-layer-dense"])
def test_a_pin_or_forbid_never_improves_the_best(name: str) -> None:
    scenario = small(name)
    free = found_by(request_of(scenario, top=1)).best[0].objective
    for pins, forbids in (
        (("pp=1",), ()),
        (("tp=2",), ()),
        (("zero_stage=1",), ()),
        (("vpp=1",), ()),
        ((), ("recompute=selective",)),
        ((), ("tp=1",)),
        ((), ("mbs=1",)),
    ):
        best = found_by(request_of(scenario, pins, forbids, top=1)).best
        assert not best or best[0].objective >= free


@pytest.mark.parametrize("name", ["tight", "experts", "pcie"])
def test_a_longer_list_starts_with_the_shorter_one(name: str) -> None:
    lists = [[plan.row for plan in found_by(request_of(small(name), top=top)).best] for top in (1, 3, 30)]
    assert [len(rows) for rows in lists] == [1, 3, 30]
    assert lists[2][:3] == lists[1]
    assert lists[1][:1] == lists[0]


@pytest.mark.parametrize("name", ["dense", "tight", "pcie"])
def test_forbidding_what_the_winner_does_makes_another_one_win(name: str) -> None:
    scenario = small(name)
    winner = found_by(request_of(scenario, top=1)).best[0]
    tried = 0
    for axis in ("tp", "cp", "pp", "dp", "micro_batch_size", "zero_stage", "num_microbatches"):
        best = found_by(request_of(scenario, (), (f"{axis}={winner.row[axis]}",), top=1)).best
        if best:
            assert best[0].row[axis] != winner.row[axis]
            assert best[0].order > winner.order
            tried += 1
    assert tried >= 5


def test_pinning_all_that_the_winner_does_gives_the_winner() -> None:
    winner = found_by(request_of(small("experts"), top=1)).best[0]
    axes = ("tp", "cp", "pp", "dp", "ep", "etp", "micro_batch_size", "vpp", "zero_stage", "dp_shard")
    again = found_by(request_of(small("experts"), tuple(f"{axis}={winner.row[axis]}" for axis in axes))).best
    assert again[0].row == winner.row


def test_more_memory_never_makes_the_best_worse() -> None:
    best = []
    for usable in (16.0, 20.0, 24.0, 28.0, 36.0):
        found = found_by(request_of(with_usable("tight", usable), top=1)).best
        best.append(found[0].objective if found else np.inf)
        assert all(plan.peak_bytes <= usable * 2**30 for plan in found)
    assert best == sorted(best, reverse=True)
    assert best[0] > best[-1]


def test_more_nodes_never_make_the_cheapest_dearer_where_all_may_idle() -> None:
    def cheapest(devices: int) -> float:
        scenario = scenario_of("llama-3.1-8b", "dgx-a100-40gb", devices, 12, 2048)
        request = request_of(scenario, objective="cost", price_per_device_hour=1.0, min_used=1e-9, top=1)
        return found_by(request).best[0].objective

    assert cheapest(16) >= cheapest(24) >= cheapest(32)


def test_the_price_scales_the_cost_and_keeps_the_order() -> None:
    one, ten = (
        found_by(request_of(small("tight"), objective="cost", price_per_device_hour=price)).best
        for price in (1.0, 10.0)
    )
    assert [plan.row for plan in one] == [plan.row for plan in ten]
    assert [plan.objective * 10 for plan in one] == pytest.approx([plan.objective for plan in ten])


# -- requests that make no sense -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"min_used": 0.0}, "min-used"),
        ({"min_used": 1.01}, "min-used"),
        ({"top": 0}, "top"),
        ({"top": 1001}, "top"),
        ({"max_seconds": 0.0}, "max-seconds"),
        ({"max_seconds": float("nan")}, "max-seconds"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**31}, "seed"),
        ({"objective": "cost"}, "price-per-device-hour"),
        ({"price_per_device_hour": 0.0}, "price-per-device-hour"),
        ({"price_per_device_hour": -1.0}, "price-per-device-hour"),
    ],
)
def test_requests_that_cannot_be_answered_are_refused_by_field(how: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        request_of(small("rack"), **how)
    assert caught.value.field == field


def status_or_refusal(scenario: Scenario, pin: str) -> str:
    """What becomes of a pin that makes no sense: an answer's status, or the field that is refused."""
    try:
        return str(answered(request_of(scenario, (pin,)))["status"])
    except InvalidInput as refusal:
        return refusal.field


@pytest.mark.parametrize("axis", ["tp", "cp", "pp", "dp", "microbatches", "dp_shard", "ep", "etp", "mbs"])
def test_a_pin_beyond_all_reason_is_answered_like_any_other(axis: str) -> None:
    assert status_or_refusal(small("experts"), f"{axis}={10**20}") in {"infeasible", "pin"}


def test_more_chunks_than_layers_are_no_plan() -> None:
    assert status_or_refusal(small("dense"), "vpp=2000") in {"infeasible", "pin"}


@pytest.mark.parametrize(("devices", "min_used", "least"), [(100, 0.55, 55), (16384, 0.9, 14746), (61, 1.0, 61)])
def test_the_least_devices_are_counted_by_the_digits_given(devices: int, min_used: float, least: int) -> None:
    scenario = scenario_of("llama-3.2-1b", "dgx-h100", devices, 64, 4096)
    assert request_of(scenario, min_used=min_used).least_devices == least


def test_ranks_that_experts_do_not_go_into_are_named() -> None:
    answer = answered(request_of(small("experts"), ("ep=3", "etp=1")))
    assert answer["status"] == "infeasible"
    assert answer["eliminated"]["experts_divisible_by_ep"] > 0
    assert "experts_divisible_by_ep" in {entry["rule"] for entry in answer["infeasibility"]["conflict"]}


@pytest.mark.parametrize(("precision", "cluster"), [("fp8", "dgx-a100-80gb"), ("mxfp8", "dgx-h100")])
def test_a_precision_that_the_devices_lack_eliminates_every_mesh_by_name(precision: str, cluster: str) -> None:
    answer = answered(SearchRequest(scenario=scenario_of("llama-3.2-1b", cluster, 8, 8, 4096, precision=precision)))
    assert answer["status"] == "infeasible"
    assert answer["eliminated"]["precision_in_hardware"] == answer["search"]["meshes"] > 0
    reasons = {entry["rule"]: entry["reason"] for entry in answer["infeasibility"]["conflict"]}
    assert reasons["precision_in_hardware"].startswith(f"precision {precision} ")
