"""Relaxations: what plans take and need at least, as numbers small enough for tables.

The closed form of the step time is ``max_s (m W_s + R_s + O_s) + waiting * mean W + fixed``. A maximum is at least
the mean, and at least what the device with the most layers does, so with ``body`` and ``ends`` the seconds of one
micro-batch in all layers and at both ends of the model, p stages, and ``t`` those of the layers of that device

    step >= (m + waiting) * ((body + ends) / p + host) + fixed
    step >= m * t + waiting / p * body + (m + waiting) * host + fixed

Stage boundaries, reductions at the end of the step and the optimizer are left out: they are never negative. ``t`` holds
over all ways to lay the layers out and to run some of them again: see ``planner.search.device_bounds``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from costmodel.arrays import Bools, Ints, Num, num
from costmodel.expert_overlap import overlapped_share, with_expert_overlap
from costmodel.facts import Facts
from costmodel.flops import model_flops_per_token
from costmodel.layers import PassCost, backward_cost, forward_cost, model_body_s, model_ends_s, total
from costmodel.offload import Offload
from costmodel.predict import evaluate_terms
from costmodel.saved import kept_of_layer
from costmodel.schedules import least_waiting
from costmodel.sharded_layers import with_sharded_parameters
from costmodel.sharding import Sharding
from costmodel.spec.plan import SCHEDULES
from costmodel.stages import Layout
from costmodel.table import AXES, PlanTable
from costmodel.terms.activations import RECOMPUTE_FULL, RECOMPUTE_NONE
from costmodel.terms.attention import ATTENTION
from costmodel.terms.communication import CONTEXT_PARALLEL
from costmodel.terms.state import state_bytes
from costmodel.terms.term import Axes
from planner.search.choices import option_columns
from planner.search.device_bounds import RowBound, StageBound, fits, layers_in_question, slowest_layers_s
from planner.search.layouts.freedom import chooses_recompute
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
    partly = chooses_recompute(request, table["recompute"], table["recompute_interval"])
    policy = num(np.where(partly, RECOMPUTE_NONE, table["recompute"]))
    body = ends = layer = again = np.full(len(table), np.inf)
    for kind in offered_cp_comm(request) or (0,):
        exchanging = row_table(request, rows, kind)
        exchange = CONTEXT_PARALLEL.evaluate(f, Axes({axis: num(exchanging[axis]) for axis in CONTEXT_PARALLEL.axes}))
        o = {**o, **exchange}
        if (exchanging["cp_balanced"] == 0).any():  # then what a rank attends to depends on the exchange
            o |= ATTENTION.evaluate(f, Axes({axis: num(exchanging[axis]) for axis in ATTENTION.axes}))

        def passes_under(recompute: Num, o: dict[str, Num] = o) -> tuple[PassCost, PassCost]:
            passes = forward_cost(f, o), backward_cost(f, o, recompute)
            passes = with_expert_overlap(f, o, *passes, overlapped)
            return passes if however_sharded else with_sharded_parameters(f, o, *passes, sharding)

        passes = passes_under(policy)
        body = np.minimum(body, sum((model_body_s(f, cost) for cost in passes), start=np.zeros(())))
        ends = np.minimum(ends, sum((model_ends_s(f, cost) for cost in passes), start=np.zeros(())))
        of_layer = _layer_s(f, passes)
        layer = np.minimum(layer, of_layer)
        if partly.any():
            more = _layer_s(f, passes_under(num(table["recompute"]))) - of_layer
            again = np.minimum(again, np.where(partly, np.maximum(more, 0.0), 0.0))
    columns = {"body_s": body, "ends_s": ends, "layer_s": layer, "again_s": again if partly.any() else np.zeros(())}
    times = {name: np.broadcast_to(column, (len(table),)) for name, column in columns.items()}
    return RowBound(**times, **_memory_bounds(request, f, o, table, sharding))


def _layer_s(f: Facts, passes: tuple[PassCost, PassCost]) -> Num:
    """Seconds of one micro-batch in a layer of the kind that fills most of the model."""
    kind = "moe" if float(f.model.moe_layers) > 0 else "dense"
    return sum((total(getattr(cost, kind)) for cost in passes), start=np.zeros(()))


def memory_bounds(request: SearchRequest, f: Facts, rows: Columns) -> dict[str, Num]:
    """The fields of ``RowBound`` that are about memory, alone."""
    table = row_table(request, rows)
    return _memory_bounds(request, f, evaluate_terms(f, table), table, Sharding.of(f, table))


def _memory_bounds(
    request: SearchRequest, f: Facts, o: dict[str, Num], table: PlanTable, sharding: Sharding
) -> dict[str, Num]:
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
    full, saved = recompute == RECOMPUTE_FULL, o[f"{kind}_saved_bytes"]
    interval = num(table["recompute_interval"])
    partly = chooses_recompute(request, recompute, table["recompute_interval"])
    least = kept_of_layer(o, kind, recompute, interval) * activations
    kept = kept_of_layer(o, kind, np.where(partly, RECOMPUTE_NONE, recompute), interval) * activations
    workspace = np.where(full, saved - o["boundary_bytes"], 0.0)
    units = np.where(sharding.cuts_parameters & ~sharding.keeps_whole, 1.0 + np.minimum(sharding.prefetch, 1.0), 0.0)
    gathered = units * work.gathered_bytes * (dense + expert)
    const = f.cal.overhead_bytes + o["dispatch_bytes"] + gathered + np.where(partly, 0.0, workspace)
    columns = {
        "const_bytes": const,
        "state_bytes": state(dense, "") + state(expert, "expert_"),
        "kept_bytes": kept,
        "least_kept_bytes": least,
        "workspace_bytes": np.where(partly, workspace, 0.0),
    }
    return {name: np.broadcast_to(column, (len(table),)) for name, column in columns.items()}


@lru_cache(maxsize=4096)
def stage_bounds(request: SearchRequest, pp: int) -> tuple[StageBound, ...]:
    """The stage options of one pipeline depth with their bounds."""
    pairs = dict.fromkeys((vpp, schedule) for vpp, _, schedule in stage_options(request, pp))
    return tuple(
        StageBound(
            pp=pp,
            vpp=vpp,
            schedule=schedule,
            waiting=float(least_waiting(np.array(schedule), num(pp), num(vpp))),
            layers=layers_in_question(request.scenario),
        )
        for vpp, schedule in pairs
    )


def step_time_bound(
    f: Facts,
    bounds: Sequence[StageBound],
    m: Ints,
    rows: RowBound,
    usable: float | Num | None,
    *,
    least_s: bool = True,
) -> Num:
    """Least step times ``(bounds, rows)`` with these stage options of one pipeline depth: the better relaxation.

    Args:
        usable: bytes of a device; seconds are infinite where nothing fits. None where memory is no matter.
        least_s: as in ``slowest_layers_s``: False is quicker, and a looser bound where memory is short.
    """
    pp, count = bounds[0].pp, num(m)
    waiting = num([bound.waiting for bound in bounds])[:, np.newaxis]
    host = (count + waiting) * f.cal.fixed_microbatch_s + f.cal.fixed_step_s
    slowest_s, again_s = slowest_layers_s(bounds, m, rows, usable, least_s=least_s)
    body = rows.body_s + again_s
    mean = (count + waiting) * (body + rows.ends_s) / pp
    slowest = count * slowest_s + waiting / pp * body
    bound_s: Num = (np.maximum(mean, slowest) + host) * f.cal.time_level
    return bound_s


@dataclass(frozen=True, kw_only=True)
class StageSteps:
    """Rows with each of their stage options: the row's place, the option, and the least step time."""

    row: Ints
    vpp: Ints
    schedule: Ints
    step_time_s: Num

    def least(self, rows: int) -> Num:
        """Of each of so many rows over its options; infinite where none is."""
        least = np.full(rows, np.inf)
        np.minimum.at(least, self.row, self.step_time_s)
        return least


def stage_steps(
    request: SearchRequest,
    f: Facts,
    meshes: Columns,
    rows: RowBound,
    usable: float | None,
    *,
    least_s: bool = True,
) -> StageSteps:
    """Least step time of each row under each of its stage options; infinite where it can't fit."""
    parts: list[tuple[Ints, int, int, Num]] = []
    for pp in np.unique(meshes["pp"]):
        at = np.flatnonzero(meshes["pp"] == pp)
        m, own = meshes["num_microbatches"][at], rows.take(at)
        bounds = stage_bounds(request, int(pp))
        steps = step_time_bound(f, bounds, m, own, usable, least_s=least_s) if bounds else ()
        for bound, step in zip(bounds, steps, strict=True):
            parts.append((at, bound.vpp, bound.schedule, step))
    none = np.zeros(0, dtype=np.int64)
    return StageSteps(
        row=np.concatenate([none, *(at for at, *_ in parts)]),
        vpp=np.concatenate([none, *(np.full(len(at), vpp) for at, vpp, *_ in parts)]),
        schedule=np.concatenate([none, *(np.full(len(at), schedule) for at, _, schedule, _ in parts)]),
        step_time_s=np.concatenate([num(none), *(step for *_, step in parts)]),
    )


def rows_that_may_fit(request: SearchRequest, rows: Columns, bounds: RowBound, usable: float) -> Bools:
    """The rows whose layers may fit into ``usable`` bytes a device with some stage option."""
    possible = np.zeros(len(rows["tp"]), dtype=np.bool_)
    for pp in np.unique(rows["pp"]).tolist():
        at, options = np.flatnonzero(rows["pp"] == pp), stage_bounds(request, pp)
        if options:
            possible[at] = fits(options, rows["num_microbatches"][at], bounds.take(at), usable)
    return possible


def least_step_time(request: SearchRequest, f: Facts, meshes: Columns, rows: RowBound, usable: float | None) -> Num:
    """Least step time of each row over its stage options; infinite where none fits into ``usable`` bytes."""
    return stage_steps(request, f, meshes, rows, usable).least(len(meshes["tp"]))


def work_bound_device_s(request: SearchRequest, f: Facts) -> float:
    """Device-seconds that the model's FLOPs take at the peak: no plan of any mesh needs fewer."""
    work = request.scenario.workload
    flops = model_flops_per_token(request.scenario.model, work.seq_len) * work.tokens_per_step
    peak = max(float(f.hardware.peak_flops), float(f.hardware.attention_peak_flops))
    return flops / peak * min(float(f.cal.compute_multiplier), 1.0) * float(f.cal.time_level)
