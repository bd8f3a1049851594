"""Relaxations: what plans take and need at least, as numbers small enough for tables.

The closed form of the step time is ``max_s (m W_s + R_s + O_s) + waiting * mean W + fixed``. A maximum is at least
the mean, and at least what the stage with most layers does, so with ``body`` and ``ends`` the seconds of one
micro-batch in all layers and at both ends of the model, p stages, and ``share`` the largest stage's share of the layers

    step >= (m + waiting) * ((body + ends) / p + host) + fixed
    step >= (m * share + waiting / p) * body + (m + waiting) * host + fixed

Stage boundaries, reductions at the end of the step and the optimizer are left out: they are never negative. Memory
keeps the stage with the most layers alive: ``const + layers * state_per_layer + alive_layers * activations_per_layer``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from costmodel.arrays import Bools, Ints, Num, num
from costmodel.expert_overlap import overlapped_share, with_expert_overlap
from costmodel.facts import Facts
from costmodel.flops import model_flops_per_token
from costmodel.layers import backward_cost, forward_cost, model_body_s, model_ends_s
from costmodel.offload import Offload
from costmodel.predict import evaluate_terms
from costmodel.saved import kept_of_layer
from costmodel.schedules import chunks_alive, chunks_held, least_waiting, placement_of
from costmodel.sharded_layers import with_sharded_parameters
from costmodel.sharding import Sharding
from costmodel.spec.model import DenseLayers
from costmodel.spec.plan import RECOMPUTES, SCHEDULES
from costmodel.stages import Layout, representative_stages
from costmodel.table import AXES, PlanTable, layer_counts
from costmodel.terms.attention import ATTENTION
from costmodel.terms.communication import CONTEXT_PARALLEL
from costmodel.terms.state import state_bytes
from costmodel.terms.term import Axes
from planner.search.choices import option_columns
from planner.search.request import SearchRequest
from planner.search.space import Columns, legal_zero_stages, offered_cp_comm, stage_options


def row_table(request: SearchRequest, rows: Columns, cp_comm_type: int = 0) -> PlanTable:
    """Rows over ``ROW_AXES`` as plans without virtual stages, all with the same CP exchange where they have one."""
    one = np.ones(len(rows["tp"]), dtype=np.int64)
    columns = rows | {
        "vpp": one,
        "layout": one * int(Layout.EVEN),
        "schedule": one * SCHEDULES.index("1f1b"),
        "cp_comm_type": np.where(rows["cp"] > 1, cp_comm_type, 0),
    }
    columns |= option_columns(request, columns)
    return PlanTable(columns={axis: columns[axis] for axis in AXES})


def with_inner(meshes: Columns, *, policy: tuple[int, int], zero_stage: int) -> Columns:
    """Every mesh with the same policy and with what ``zero_stage`` names sharded over all replicas."""
    one, dp = np.ones(len(meshes["tp"]), dtype=np.int64), meshes["dp"]
    sharded = zero_stage > 0
    return meshes | {
        "recompute": one * policy[0],
        "options": one * policy[1],
        "zero_stage": one * zero_stage,
        "dp_shard": dp if sharded else one,
        "dp_replicate": one if sharded else dp,
    }


def leanest_stages(request: SearchRequest) -> tuple[int, ...]:
    """The ZeRO stages of which one needs the least memory, on any mesh.

    Gathered layers can make stage 3 need more than stage 2; where both gather, a single rank is better off with none.
    """
    stages = legal_zero_stages(request)
    return stages if request.scenario.framework.stage_2_gathers else stages[-2:]


@dataclass(frozen=True, kw_only=True)
class RowBound:
    """Per row (a mesh with what it recomputes and shards): seconds and bytes for one micro-batch.

    Attributes:
        body_s, ends_s: seconds of one micro-batch in all layers and at both ends.
        const_bytes: what a stage needs whatever layers it holds.
        state_bytes, activation_bytes: of one layer of the kind that fills most of the model.
    """

    body_s: Num
    ends_s: Num
    const_bytes: Num
    state_bytes: Num
    activation_bytes: Num

    def take(self, rows: Ints) -> RowBound:
        """The chosen rows."""
        return RowBound(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def row_bounds(request: SearchRequest, f: Facts, rows: Columns, *, however_sharded: bool = False) -> RowBound:
    """Bounds of rows over ``ROW_AXES``, at the cheapest way to exchange keys and values.

    Args:
        however_sharded: bound the times of plans that differ from the rows in what they shard and how far: data
            parallelism then costs nothing.
    """
    table = row_table(request, rows)
    o, sharding = evaluate_terms(f, table), Sharding.of(f, table)
    # Without virtual stages the fewest micro-batches run alone.
    overlapped = overlapped_share(table, schedules=request.scenario.framework.schedules)
    body = ends = np.full(len(table), np.inf)
    for kind in offered_cp_comm(request) or (0,):
        exchanging = row_table(request, rows, kind)
        exchange = CONTEXT_PARALLEL.evaluate(f, Axes({axis: num(exchanging[axis]) for axis in CONTEXT_PARALLEL.axes}))
        o = {**o, **exchange}
        if (exchanging["cp_balanced"] == 0).any():  # then what a rank attends to depends on the exchange
            o |= ATTENTION.evaluate(f, Axes({axis: num(exchanging[axis]) for axis in ATTENTION.axes}))
        passes = forward_cost(f, o), backward_cost(f, o, num(table["recompute"]))
        passes = with_expert_overlap(f, o, *passes, overlapped)
        if not however_sharded:
            passes = with_sharded_parameters(f, o, *passes, sharding)
        body = np.minimum(body, sum((model_body_s(f, cost) for cost in passes), start=np.zeros(())))
        ends = np.minimum(ends, sum((model_ends_s(f, cost) for cost in passes), start=np.zeros(())))
    shape = (len(table),)
    times = {"body_s": np.broadcast_to(body, shape), "ends_s": np.broadcast_to(ends, shape)}
    return RowBound(**times, **_memory_bounds(f, o, table, sharding))


def memory_bounds(request: SearchRequest, f: Facts, rows: Columns) -> dict[str, Num]:
    """The fields of ``RowBound`` that are about memory, alone."""
    table = row_table(request, rows)
    return _memory_bounds(f, evaluate_terms(f, table), table, Sharding.of(f, table))


def _memory_bounds(f: Facts, o: dict[str, Num], table: PlanTable, sharding: Sharding) -> dict[str, Num]:
    work, zero, recompute = f.work, sharding.zero_stage, table["recompute"]
    kind = "moe" if float(f.model.moe_layers) > 0 else "dense"
    whole = np.where(sharding.keeps_whole, work.gathered_bytes, 0.0)
    offload, here = Offload.of(f, table, sharding), np.ones(())
    parameters = gradients = optimizer = activations = here
    if offload is not None:
        kept_here = (offload.parameters, offload.gradients, offload.optimizer, offload.activations)
        parameters, gradients, optimizer, activations = (np.where(away, 0.0, 1.0) for away in kept_here)

    def state(params: Num, prefix: str) -> Num:
        shards = o[f"{prefix}shards"]
        found = state_bytes(
            params,
            shards,
            np.where(sharding.cuts_parameters, 3.0, zero),
            param_bytes=(work.kept_param_bytes - work.absent_param_bytes) * parameters + work.kept_copy_bytes,
            gradient_bytes=work.gradient_bytes * gradients,
            optimizer_bytes=work.optimizer_bytes * optimizer,
        )
        accumulated = np.where((zero >= 2) & ~sharding.cuts_gradients, 1.0 - 1.0 / shards, 0.0) * work.gradient_bytes
        accumulated = accumulated * gradients
        if sharding.second_copy.any():
            accumulated = accumulated + sharding.second_copy * work.param_bytes / o[f"{prefix}shards_in_domain"]
        return found + params * (accumulated + whole)

    dense, expert = o[f"{kind}_layer_params"], o["expert_layer_params"] * (kind == "moe")
    full, saved = recompute == RECOMPUTES.index("full"), o[f"{kind}_saved_bytes"]
    kept = kept_of_layer(o, kind, recompute, num(table["recompute_interval"])) * activations
    units = np.where(sharding.cuts_parameters & ~sharding.keeps_whole, 1.0 + np.minimum(sharding.prefetch, 1.0), 0.0)
    gathered = units * work.gathered_bytes * (dense + expert)
    const = f.cal.overhead_bytes + o["dispatch_bytes"] + gathered + np.where(full, saved - o["boundary_bytes"], 0.0)
    columns = {
        "const_bytes": const,
        "state_bytes": state(dense, "") + state(expert, "expert_"),
        "activation_bytes": kept,
    }
    return {name: np.broadcast_to(column, (len(table),)) for name, column in columns.items()}


@dataclass(frozen=True, kw_only=True)
class StageBound:
    """One (vpp, schedule) of a pipeline depth at its best over the layouts.

    Attributes:
        waiting: in units of a device's work for one micro-batch.
        share: the largest stage's share of the layers; 1/p when layers differ in kind.
    """

    vpp: int
    schedule: int
    layouts: tuple[int, ...]
    waiting: float
    share: float

    def alive(self, request: SearchRequest, pp: int, m: int) -> tuple[float, float]:
        """Fewest (layers held, layers alive) over layouts, on the stage that keeps most layers alive."""
        layers, leading_dense = layer_counts(request.scenario)
        return _alive(layers, leading_dense, pp, self.vpp, self.schedule, self.layouts, min(m, 2 * pp))


@lru_cache(maxsize=65536)
def _alive(
    layers: int, leading_dense: DenseLayers, pp: int, vpp: int, schedule: int, layouts: tuple[int, ...], m: int
) -> tuple[float, float]:
    held_least, alive_least = np.inf, np.inf
    placement = placement_of(SCHEDULES[schedule])
    chunks = float(chunks_held(np.array(schedule), num(vpp)))
    for layout in layouts:
        stages = representative_stages(layers, leading_dense, pp, vpp, Layout(layout), placement) or ()
        # Only layers of the model's main kind are counted: leaving the others out keeps this a lower bound.
        count = np.array(
            [s.dense_layers if leading_dense == layers else s.moe_layers for s in stages], dtype=np.float64
        )
        index = num([stage.index for stage in stages])
        alive = chunks_alive(np.full(len(count), schedule), num(pp), num(vpp), num(m), index) * count / chunks
        fullest = int(alive.argmax())
        held_least, alive_least = min(held_least, count[fullest]), min(alive_least, alive[fullest])
    return float(held_least), float(alive_least)


@lru_cache(maxsize=4096)
def stage_bounds(request: SearchRequest, pp: int) -> tuple[StageBound, ...]:
    """The stage options of one pipeline depth with their bounds."""
    layers, leading_dense = layer_counts(request.scenario)
    by_chunks: dict[tuple[int, int], list[int]] = {}
    for vpp, layout, schedule in stage_options(request, pp):
        by_chunks.setdefault((vpp, schedule), []).append(layout)
    found: list[StageBound] = []
    for (vpp, schedule), layouts in by_chunks.items():
        shares = []
        for layout in layouts:
            placement = placement_of(SCHEDULES[schedule])
            stages = representative_stages(layers, leading_dense, pp, vpp, Layout(layout), placement) or ()
            shares.append(max((stage.dense_layers + stage.moe_layers) * stage.work_share for stage in stages) / layers)
        uniform = leading_dense in (0, layers)
        waiting = float(least_waiting(np.array(schedule), num(pp), num(vpp)))
        share = min(shares) if uniform else 1.0 / pp
        found.append(StageBound(vpp=vpp, schedule=schedule, layouts=tuple(layouts), waiting=waiting, share=share))
    return tuple(found)


def step_time_bound(f: Facts, bound: StageBound, pp: int, m: Num, body: Num, ends: Num) -> Num:
    """Least step time with these stage options: the better of the two relaxations above."""
    host = (m + bound.waiting) * f.cal.fixed_microbatch_s + f.cal.fixed_step_s
    mean = (m + bound.waiting) * (body + ends) / pp
    slowest = (m * bound.share + bound.waiting / pp) * body
    bound_s: Num = (np.maximum(mean, slowest) + host) * f.cal.time_level
    return bound_s


def least_step_time(request: SearchRequest, f: Facts, meshes: Columns, rows: RowBound, usable: float | None) -> Num:
    """Least step time of each row over its stage options; infinite where none fits into ``usable`` bytes."""
    least = np.full(len(meshes["tp"]), np.inf)
    for pp in np.unique(meshes["pp"]):
        at = np.flatnonzero(meshes["pp"] == pp)
        m = meshes["num_microbatches"][at]
        for bound in stage_bounds(request, int(pp)):
            value = step_time_bound(f, bound, int(pp), num(m), rows.body_s[at], rows.ends_s[at])
            if usable is not None:
                value = np.where(fits(request, bound, int(pp), m, rows, at, usable), value, np.inf)
            least[at] = np.minimum(least[at], value)
    return least


def work_bound_device_s(request: SearchRequest, f: Facts) -> float:
    """Device-seconds that the model's FLOPs take at the peak: no plan of any mesh needs fewer."""
    work = request.scenario.workload
    flops = model_flops_per_token(request.scenario.model, work.seq_len) * work.tokens_per_step
    peak = max(float(f.hardware.peak_flops), float(f.hardware.attention_peak_flops))
    return flops / peak * min(float(f.cal.compute_multiplier), 1.0) * float(f.cal.time_level)


def fits(request: SearchRequest, bound: StageBound, pp: int, m: Ints, rows: RowBound, at: Ints, usable: float) -> Bools:
    """Whether the relaxed memory of rows ``at`` stays within ``usable`` under these stage options."""
    distinct, inverse = np.unique(np.minimum(m, 2 * pp), return_inverse=True)
    held, alive = np.array([bound.alive(request, pp, int(value)) for value in distinct]).T
    need = rows.const_bytes[at] + held[inverse] * rows.state_bytes[at] + alive[inverse] * rows.activation_bytes[at]
    return np.asarray(need <= usable)
