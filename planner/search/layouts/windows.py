"""How many layers a device can have at most, before anything is shared out: by the time that is left, and by memory."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Ints, Num, distinct, num
from costmodel.facts import Facts
from costmodel.plan_costs import PlanCosts
from costmodel.schedules import placements
from costmodel.stages import Placement
from costmodel.table import PlanTable, StageTable
from costmodel.terms.activations import RECOMPUTE_FULL
from planner.search.device_bounds import layers_in_question
from planner.search.end_bound import least_end_s
from planner.search.layouts.freedom import chooses_recompute
from planner.search.layouts.splits import Pipeline
from planner.search.request import SearchRequest

_ROUNDING = 1e-10


def pipelines_of(request: SearchRequest, table: PlanTable) -> list[tuple[Pipeline, Ints]]:
    """The pipelines of a table's plans, each with its rows."""
    model = request.scenario.model
    placed = placements(table["schedule"])
    first, inverse = distinct([table["pp"], table["vpp"], placed])
    found = []
    for code, row in enumerate(first.tolist()):
        pipeline = Pipeline(
            layers=model.num_layers,
            dense=model.dense_layers,
            pp=int(table["pp"][row]),
            vpp=int(table["vpp"][row]),
            placement=Placement(int(placed[row])),
        )
        found.append((pipeline, np.flatnonzero(inverse == code)))
    return found


def most_layers(request: SearchRequest, f: Facts, table: PlanTable, limits: Num, usable: float) -> Ints:
    """No device of a plan within its limit and the memory has more layers than this.

    0 where the model then doesn't fit at all; else few distinct numbers, each rounded up.
    """
    model = request.scenario.model
    layers, dense = model.num_layers, model.dense_layers
    count = float(len(dense) if isinstance(dense, tuple) else dense)
    kinds = [kind for kind, there in (("dense", count > 0), ("moe", count < layers)) if there]
    free = chooses_recompute(request, table["recompute"], table["recompute_interval"])
    full = np.asarray((table["recompute"] == RECOMPUTE_FULL) & ~free)
    # Stages without ends: without layers, with one of each kind, and with an even share of the main kind.
    counts, even = np.array([0.0, *(1.0 for _ in kinds), 0.0]), -(-layers // table["pp"])
    of_dense, of_moe = (
        counts * [0, *(kind == of for kind in kinds), 0] + np.zeros((len(table), 1)) for of in ("dense", "moe")
    )
    share = np.ceil(layers_in_question(request.scenario) / num(table["pp"]))
    (of_moe if "moe" in kinds else of_dense)[:, -1] = share
    again = num(full)[:, np.newaxis]
    plans = PlanCosts.of(f, table)
    times = plans.times(_middle(table, of_dense, of_moe, again))
    slowest = times.slowest_s(limits, np.where(full, times.again_s(num(count), num(layers - count)), 0.0))
    slowest, m = slowest * (1.0 + _ROUNDING), num(table["num_microbatches"])
    layer = (times.work_s[:, 1:-1] - times.work_s[:, :1]).min(axis=1)
    left = slowest / m - times.work_s[:, 0]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        most = np.floor(np.clip(np.where(layer > 0, left / layer, np.inf), 0.0, layers)).astype(np.int64)
    # Some device has that share, and then comes what comes once a step.
    ahead_s, back_s = (np.broadcast_to(hides, of_moe.shape)[:, -1] for hides in times.hides_s)
    offloads = plans.offload is not None
    end_s = least_end_s(f, plans.outputs, plans.sharding, share, ahead_s=ahead_s, back_s=back_s, offloads=offloads)
    most[m * times.work_s[:, -1] + end_s > slowest] = 0
    wide = np.flatnonzero(most > 2 * even)
    if len(wide):
        most[wide] = _by_memory(f, table.take(wide), kinds, most[wide], usable)
    # Few distinct numbers: one above even by one, two, four, ...
    above = np.maximum(most - even, 0)
    rounded = even + np.where(above > 0, 2 ** np.ceil(np.log2(np.maximum(above, 1))), 0).astype(np.int64)
    return np.where(most < even, 0, np.minimum(rounded, layers))


def _by_memory(f: Facts, table: PlanTable, kinds: list[str], most: Ints, usable: float) -> Ints:
    """The same by memory: of the device that keeps the fewest micro-batches, all layers run again where they can."""
    plans, again = PlanCosts.of(f, table), num(table["recompute"] == RECOMPUTE_FULL)[:, np.newaxis]
    found = np.zeros_like(most)
    for kind in kinds:
        low, high = np.zeros_like(most), most.copy()
        while (low < high).any():
            middle = (low + high + 1) // 2
            count, none = num(middle)[:, np.newaxis], np.zeros((len(most), 1))
            dense, moe = (count, none) if kind == "dense" else (none, count)
            enough = plans.device_bytes(_middle(table, dense, moe, again))[:, 0] <= usable
            low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
        # Of layers of two kinds no more fit than of the smaller kind alone.
        found = np.maximum(found, low)
    return found


def _middle(table: PlanTable, dense: Num, moe: Num, again: Num) -> StageTable:
    """Stages without ends, on the device that keeps the fewest micro-batches."""
    zero = np.zeros_like(dense)
    return StageTable(
        index=zero + num(table["pp"] - 1)[:, np.newaxis],
        dense_layers=dense,
        moe_layers=moe,
        has_embedding=zero,
        has_head=zero,
        work_share=np.ones((1, 1)),
        recomputed_dense=again * dense,
        recomputed_moe=again * moe,
    )
