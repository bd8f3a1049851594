"""Small search problems from a seed, and the whole of their spaces priced: what a search is held against.

Nothing here reads the search's domains, bounds, rows, master or layouts: only rules and prices of the cost model.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from costmodel.arrays import Num
from costmodel.catalog.framework_catalog import load_framework
from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.rules import rules_for
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.options import BY_NAME
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES
from costmodel.stages import Layout, Placement, layers_per_chunk, stages_of_chunks
from costmodel.table import PlanTable, StageTable, mesh_size, virtual_stages
from planner.search.request import SearchRequest
from tests.planner.layouts import Layouts, every_number, every_split, model_of
from tests.planner.test_search import FAMILY, Row, inner_of, meshes_of
from tests.scenarios import scenario_of
from tests.searches import request_of

PRICE = 2.5
_FULL = RECOMPUTES.index("full")
_KINDS = ("dense", "dense", "experts", "first-dense", "alternating", "predicting", "mixing")
_FRAMEWORKS = ("megatron-core", "megatron-core", "torchtitan", "torchtitan", "deepspeed", "nanotron", "hai-llm")
_PINS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((), ()),
    ((), ()),
    (("recompute=full",), ()),
    ((), ("recompute=full",)),
    ((), ("tp=1",)),
    (("dp=1..2",), ()),
    (("vpp=1",), ()),
    (("pp=2..3",), ()),
    (("zero_stage=0..1",), ("pp=1",)),
    (("tp=3",), ()),
)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is asked.

    Attributes:
        share: usable memory over the least that any plan needs; below 1 nothing fits.
    """

    scenario: Scenario
    pins: tuple[str, ...]
    forbids: tuple[str, ...]
    objective: str
    share: float
    words: str = field(compare=False)

    def request(self, usable: int, **how: Any) -> SearchRequest:
        """The search, with so many usable bytes on every device."""
        free = self.scenario.cluster.accelerator.memory_bytes - usable
        kept = {name: getattr(self.scenario, name) for name in Scenario.model_fields}
        how = {"objective": self.objective, "price_per_device_hour": PRICE, "top": 6} | how
        return request_of(Scenario(**(kept | {"min_free_bytes": free})), self.pins, self.forbids, **how)


def problem(seed: int) -> Problem:
    """One of the problems."""
    draw = random.Random(seed)
    kind, framework = _KINDS[seed % len(_KINDS)], draw.choice(_FRAMEWORKS)
    # Experts and multi-token prediction are not everybody's.
    few = kind in ("alternating", "predicting") or (
        kind not in ("dense", "mixing") and framework in ("deepspeed", "nanotron")
    )
    framework = "megatron-core" if few else framework
    layers, devices = draw.choice((3, 4, 5)), draw.choice((2, 3, 4, 5, 6, 7, 8))
    batch = draw.choice((4, 6, 8, devices, 2 * devices))
    cluster = draw.choice(("dgx-h100", "dgx-a100-40gb", "rtx4090-8"))
    objective = draw.choice(("step_time", "step_time", "cost", "fewest_devices"))
    pins, forbids = draw.choice(_PINS)
    own = tuple(pin.split("=")[0] for pin in pins)
    narrow = {"tp": "tp=1..2", "cp": "cp=1..2", "vpp": "vpp=1..2", "micro_batch_size": "micro_batch_size=1..2"}
    pins += tuple(pin for axis, pin in narrow.items() if axis not in own)
    share = draw.choice((0.9, 1.0005, 1.05, 1.2, 2.0, 100.0))
    model = model_of("dense", layers) if kind == "mixing" else model_of(kind, layers)
    if kind == "mixing":
        model = model.model_copy(update={"sliding_window": 512, "num_sliding_layers": layers // 2})
    scenario = scenario_of(model, cluster, devices, batch, 1024)
    scenario = scenario.model_copy(update={"framework": load_framework(framework)})
    words = f"{kind} {layers} layers, {framework}, {devices} {cluster}, batch {batch}, {objective}, {share}, {pins}"
    return Problem(
        scenario=scenario, pins=pins, forbids=forbids, objective=objective, share=share, words=f"{words} not {forbids}"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """Every legal plan: prices, devices and family."""

    step_time_s: Num
    peak_bytes: Num
    devices_used: Num
    families: list[tuple[int, ...]]
    interleaved: list[tuple[Layouts, list[Row]]]

    @property
    def least_bytes(self) -> float:
        """What the leanest plan needs."""
        own = [layouts.peak_bytes.min() for layouts, _ in self.interleaved]
        return float(min([*own, self.peak_bytes.min()]))

    def best(self, objective: str, usable: float) -> dict[tuple[int, ...], tuple[float, ...]]:
        """Family -> (objective, devices) of its best plan that fits, best first."""
        found: dict[tuple[int, ...], tuple[float, ...]] = {}

        def order(seconds: float, used: int) -> tuple[float, ...]:
            cost = PRICE * used * seconds / 3600.0
            return {"step_time": (seconds, used), "cost": (cost, used), "fewest_devices": (used, seconds)}[objective]

        for place in np.flatnonzero(self.peak_bytes <= usable).tolist():
            key = order(float(self.step_time_s[place]), int(self.devices_used[place]))
            family = self.families[place]
            found[family] = min(found.get(family, key), key)
        for layouts, recipes in self.interleaved:
            step = layouts.least(usable, recipes)
            if step is not None:
                family = tuple(layouts.row[axis] for axis in FAMILY)
                key = order(step, int(mesh_size(layouts.row)))
                found[family] = min(found.get(family, key), key)
        return dict(sorted(found.items(), key=lambda item: item[1]))


def space_of(asked: Problem) -> Space:
    """Enumerate a problem's space and price all of it."""
    scenario = asked.scenario
    least = 1 if asked.objective == "fewest_devices" else -(-9 * scenario.devices // 10)
    constraints = request_of(scenario, asked.pins, asked.forbids).constraints
    touched = [axis for axis in (*FAMILY, "vpp", "zero_stage", "recompute") if constraints.touches(axis)]

    def wanted(row: Row) -> bool:
        return all(constraints.allows(axis, row[axis]) for axis in touched if axis in row)

    policies = [code for code in range(len(RECOMPUTES)) if constraints.allows("recompute", code)]
    rows = [
        row
        for mesh in meshes_of(scenario, least)
        if wanted(mesh)
        for row in _inner(scenario, mesh)
        if wanted(row) and row["recompute"] in policies
    ]
    by_shape: dict[tuple[Any, ...], list[Row]] = {}
    interleaved: list[Row] = []
    recipes: dict[tuple[int, ...], list[Row]] = {}
    for row, lawful in zip(rows, _lawful(scenario, rows), strict=True):
        if lawful and _waits(row) and _lays_freely(scenario, row):
            recipes.setdefault(_but_layout(row), []).append(row)
    for row, lawful in zip(rows, _lawful(scenario, rows, "layout"), strict=True):
        if lawful:
            free = _lays_freely(scenario, row)
            again = _recomputes_partly(scenario, row, policies) and (free or row["pp"] == 1)
            shape = (row["pp"], row["vpp"], row["schedule"], row["recompute"], free, again, free or row["layout"])
            if free and _waits(row):
                interleaved += [row] if row["layout"] == Layout.EVEN else []
            elif not free or row["layout"] == Layout.EVEN:
                by_shape.setdefault(shape, []).append(row)
    facts, parts = Facts.of(scenario), list[tuple[PlanTable, Num, Num]]()
    for some in by_shape.values():
        parts += _priced(facts, scenario, some, policies)
    own = [
        (
            Layouts.of(scenario, row, partly=_recomputes_partly(scenario, row, policies)),
            recipes.get(_but_layout(row), []),
        )
        for row in interleaved
    ]
    own = [(layouts, of) for layouts, of in own if layouts.chunks]
    if not parts:
        nothing = np.zeros(0)
        return Space(step_time_s=nothing, peak_bytes=nothing, devices_used=nothing, families=[], interleaved=own)
    tables = [table for table, _, _ in parts]
    columns = [np.concatenate([table[axis] for table in tables]).tolist() for axis in FAMILY]
    return Space(
        step_time_s=np.concatenate([step for _, step, _ in parts]),
        peak_bytes=np.concatenate([peak for _, _, peak in parts]),
        devices_used=np.concatenate([table.devices_used for table in tables]),
        families=list(zip(*columns, strict=True)),
        interleaved=own,
    )


def _waits(row: Row) -> bool:
    """Whether chunks of a plan may wait for each other: its layout then is one that is chosen, not the best of all."""
    return row["vpp"] > 1 and SCHEDULES[row["schedule"]] == "interleaved_1f1b"


def _but_layout(row: Row) -> tuple[int, ...]:
    return tuple(row[axis] for axis in sorted(row) if axis != "layout")


def _inner(scenario: Scenario, mesh: Row) -> Iterator[Row]:
    """Every way to fill in one mesh under any framework, the layouts by recipe among them."""
    framework = scenario.framework
    schedules = [SCHEDULES.index(name) for name in (framework.schedules if mesh["pp"] > 1 else ("1f1b",))]
    exchanges = [CP_COMM_TYPES.index(kind) for kind in framework.cp_comm_types]
    reshard = BY_NAME["reshard_after"]
    resharded = [0, reshard.encode("step")] if "step" in (framework.known_reshard_after() or ()) else [0]
    overlaps = framework.has("ep_overlap")
    for row in inner_of(scenario, mesh, ()):
        if row["recompute"] == 1 and not framework.selective_modules:
            continue
        if row["zero_stage"] not in framework.zero_stages or (row["cp"] > 1 and row["cp_comm_type"] not in exchanges):
            continue
        if row["ep_overlap"] and not overlaps:
            continue
        synced = [{}, {"gradient_sync": 0}] if framework.pipelines_reduce_once else [{}]
        for schedule, after, sync in product(schedules, resharded, synced):
            yield row | {"schedule": schedule, "reshard_after": after} | sync


def _lawful(scenario: Scenario, rows: list[Row], but: str = "") -> np.ndarray:
    """The rows that break no rule, but for those that read an axis that is not settled yet."""
    if not rows:
        return np.zeros(0, dtype=np.bool_)
    table = PlanTable.of_rows(rows)
    free = np.array([_lays_freely(scenario, row) for row in rows])
    legal = np.ones(len(rows), dtype=np.bool_)
    for rule in rules_for(scenario.framework):
        holds = rule.holds(scenario, table.columns)
        legal &= (holds | free) if but in rule.axes else holds
    return legal


def _lays_freely(scenario: Scenario, row: Row) -> bool:
    """Whether the framework takes any number of layers for each chunk of such a plan."""
    model = scenario.model
    feature = "pipeline_layout_mtp" if model.num_mtp_layers else "pipeline_layout"
    placed = placement_of(SCHEDULES[row["schedule"]]) != Placement.BOTH_WAYS
    mixes = isinstance(model.dense_layers, tuple) and row["vpp"] > 1
    return row["pp"] > 1 and scenario.framework.has(feature) and placed and not mixes


def _recomputes_partly(scenario: Scenario, row: Row, policies: list[int]) -> bool:
    """Whether a plan may run some of its layers again."""
    return row["recompute"] == _FULL and scenario.framework.has("recompute_block") and {0, _FULL} <= set(policies)


def _priced(
    facts: Facts, scenario: Scenario, rows: list[Row], policies: list[int]
) -> Iterator[tuple[PlanTable, Num, Num]]:
    """Rows that may have the same layouts, with every one of these."""
    row, layers = rows[0], scenario.model.num_layers
    placement = placement_of(SCHEDULES[row["schedule"]])
    free = _lays_freely(scenario, row)
    again = _recomputes_partly(scenario, row, policies) and (free or row["pp"] == 1)
    if free:
        splits = list(every_split(layers, row["pp"], row["vpp"], in_a_v=placement == Placement.V))
    else:
        recipe = layers_per_chunk(layers, row["pp"], row["vpp"], Layout(row["layout"]), placement)
        splits = [] if recipe is None else [recipe]
    kinds = [
        stages_of_chunks(chunks, scenario.model.dense_layers, placement, number)
        for chunks in splits
        for number in (every_number(chunks) if again else [None])
    ]
    if not kinds:
        return
    of_row, of_layout = (index.ravel() for index in np.indices((len(rows), len(kinds))))
    table = PlanTable.of_rows(rows).take(of_row)
    stages = StageTable.of(kinds)
    if _waits(row) and not again:
        stages = stages.with_chunks(virtual_stages(splits, [scenario.model.dense_layers] * len(splits)))
    prices = predict(facts, table, stages.take(of_layout))
    yield table, prices.step_time_s, prices.device_bytes(facts)
