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
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES, Plan
from costmodel.stages import Layout, layers_per_chunk
from costmodel.table import PlanTable, stage_table
from planner.search.answer import answer_of, plan_of
from planner.search.constraints import Constraints
from planner.search.request import SearchRequest
from planner.search.solve import Outcome, Search
from tests.scenarios import scenario_of

FAMILY = ("tp", "cp", "pp", "dp", "ep", "etp", "micro_batch_size", "num_microbatches", "schedule")
Row = dict[str, int]

# (model, cluster, devices, global batch, sequence length): dense and tied; a batch with a factor 3; a quarter of the
# memory; experts everywhere; experts after a dense layer, latent attention; PCIe boxes; a rack as one domain.
SMALL = {
    "dense": ("llama-3.2-1b", "dgx-h100", 16, 16, 4096),
    "batch-of-12": ("llama-3.1-8b", "dgx-a100-80gb", 24, 12, 2048),
    "tight": ("llama-3.1-8b", "dgx-a100-40gb", 8, 8, 8192),
    "experts": ("qwen3-30b-a3b", "dgx-h100", 16, 4, 4096),
    "first-layer-dense": ("deepseek-v2-lite", "dgx-h100", 8, 8, 4096),
    "pcie": ("llama-3.2-3b", "rtx4090-8", 8, 8, 4096),
    "rack": ("llama-3.1-8b", "gb200-nvl72", 36, 36, 4096),
}


def small(name: str) -> Scenario:
    model, cluster, devices, batch, seq_len = SMALL[name]
    return scenario_of(model, cluster, devices, batch, seq_len)


def request_of(
    scenario: Scenario, pins: tuple[str, ...] = (), forbids: tuple[str, ...] = (), **how: Any
) -> SearchRequest:
    return SearchRequest(scenario=scenario, constraints=Constraints.parse(pins, forbids), **how)


def found_by(request: SearchRequest) -> Outcome:
    return Search(request).run()


def answered(request: SearchRequest) -> dict[str, Any]:
    return answer_of(request, Facts.of(request.scenario), found_by(request))


# -- the oracle: nothing below imports the space, the bounds, the rows or the master ---------------------------------


def divisors(value: int) -> list[int]:
    return [d for d in range(1, value + 1) if value % d == 0]


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
    node = [
        s
        for s in divisors(dp)
        if 1 < s < dp and mesh["tp"] * mesh["cp"] * s <= scenario.cluster.scale_up_devices
    ]
    sharded = {dp, *node[-1:], *(s for s in shards if dp % s == 0 and (s > 1 or dp == 1))}
    sharding = [(0, 1), *product((1, 2, 3), sorted(sharded))]
    stages = [
        (vpp, layout)
        for vpp in range(1, min(16, max(1, (layers + 2) // pp)) + 1 if pp > 1 else 2)
        for layout in (0, 1, 2)
        if layers_per_chunk(layers, pp, vpp, Layout(layout)) is not None
    ]
    exchanges = range(len(CP_COMM_TYPES)) if mesh["cp"] > 1 else (0,)
    for (zero, shard), (vpp, layout), exchange, recompute in product(sharding, stages, exchanges, range(3)):
        yield mesh | {
            "zero_stage": zero,
            "dp_shard": shard,
            "dp_replicate": dp // shard,
            "vpp": vpp,
            "layout": layout,
            "schedule": SCHEDULES.index("interleaved_1f1b" if vpp > 1 else "1f1b"),
            "cp_comm_type": exchange,
            "recompute": recompute,
        }


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
            order = (key(float(self.step_time_s[index]), used), used, float(self.peak_bytes[index]))
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
