"""Relaxations of rows: seconds and bytes of one micro-batch, at least, whatever their stages hold.

``planner.search.stage_steps`` says what follows for the step.
"""

from __future__ import annotations

from collections import ChainMap
from typing import cast

import numpy as np

from costmodel.arrays import Ints, Num, num
from costmodel.expert_overlap import overlapped_share, with_expert_overlap
from costmodel.facts import Facts
from costmodel.flops import model_flops_per_token
from costmodel.layers import PassCost, backward_cost, forward_cost, hiding_cost, model_body_s, model_ends_s, total
from costmodel.offload import Offload
from costmodel.saved import kept_of_layer
from costmodel.sharded_layers import with_sharded_parameters
from costmodel.sharding import Sharding
from costmodel.spec.plan import SCHEDULES
from costmodel.stages import Layout
from costmodel.table import AXES, PlanTable
from costmodel.term_outputs import evaluate_terms
from costmodel.terms.activations import RECOMPUTE_FULL, RECOMPUTE_NONE
from costmodel.terms.attention import ATTENTION
from costmodel.terms.communication import CONTEXT_PARALLEL
from costmodel.terms.state import state_bytes
from costmodel.terms.term import Outputs
from planner.search.choices import option_columns
from planner.search.device_bounds import RowBound, layers_in_question
from planner.search.end_bound import least_end_s
from planner.search.layouts.freedom import chooses_recompute
from planner.search.request import SearchRequest
from planner.search.space import Columns, legal_zero_stages, offered_cp_comm


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


def with_inner(meshes: Columns, *, policy: tuple[int | Ints, int | Ints], zero_stage: int) -> Columns:
    """Every mesh with a policy, the same or its own, and with what ``zero_stage`` names sharded over all replicas."""
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
    times = _times(request, f, rows, table, o, overlapped, None if however_sharded else sharding)
    return RowBound(**times, **_memory_bounds(request, f, o, table, sharding))


def times_however_sharded(request: SearchRequest, f: Facts, rows: Columns, overlapped: float) -> dict[str, Num]:
    """The fields of ``RowBound`` that are about time, for plans that may shard otherwise than the rows.

    Args:
        overlapped: share of the micro-batches under which the exchanges of experts hide; times are linear in it.
    """
    table = row_table(request, rows)
    return _times(request, f, rows, table, evaluate_terms(f, table), np.full(len(table), overlapped), None)


def _times(
    request: SearchRequest,
    f: Facts,
    rows: Columns,
    table: PlanTable,
    o: Outputs,
    overlapped: Num,
    sharding: Sharding | None,
) -> dict[str, Num]:
    """Seconds of one micro-batch; without ``sharding`` data parallelism costs nothing."""
    partly = chooses_recompute(request, table["recompute"], table["recompute_interval"])
    policy = num(np.where(partly, RECOMPUTE_NONE, table["recompute"]))
    body = ends = layer = again = np.full(len(table), np.inf)
    ahead_s = back_s = end = np.zeros(len(table))
    for kind in offered_cp_comm(request) or (0,):
        exchanging = row_table(request, rows, kind)
        exchange = evaluate_terms(f, exchanging)
        names = CONTEXT_PARALLEL.gives
        if (exchanging["cp_balanced"] == 0).any():  # then what a rank attends to depends on the exchange
            names += ATTENTION.gives
        own = _with(o, {name: exchange[name] for name in names})

        def passes_under(recompute: Num, o: Outputs = own) -> tuple[PassCost, PassCost]:
            passes = forward_cost(f, o), backward_cost(f, o, recompute)
            passes = with_expert_overlap(f, o, *passes, overlapped)
            return passes if sharding is None else with_sharded_parameters(f, o, *passes, sharding)

        passes = passes_under(policy)
        if sharding is not None:
            ahead_s, back_s = (
                np.maximum(window, _layer_s(f, (hiding_cost(cost, own, backward=backward),)))
                for window, cost, backward in ((ahead_s, passes[0], False), (back_s, passes[1], True))
            )
        body = np.minimum(body, sum((model_body_s(f, cost) for cost in passes), start=np.zeros(())))
        ends = np.minimum(ends, sum((model_ends_s(f, cost) for cost in passes), start=np.zeros(())))
        of_layer = _layer_s(f, passes)
        layer = np.minimum(layer, of_layer)
        if partly.any():
            more = _layer_s(f, passes_under(num(table["recompute"]))) - of_layer
            again = np.minimum(again, np.where(partly, np.maximum(more, 0.0), 0.0))
    if sharding is not None:
        layers = np.ceil(layers_in_question(request.scenario) / num(table["pp"]))
        offloads = Offload.of(f, table, sharding) is not None
        end = least_end_s(f, o, sharding, layers, ahead_s=layers * ahead_s, back_s=layers * back_s, offloads=offloads)
    columns = {"body_s": body, "ends_s": ends, "layer_s": layer, "again_s": again if partly.any() else np.zeros(())}
    columns["end_s"] = end
    return {name: np.broadcast_to(column, (len(table),)) for name, column in columns.items()}


def _with(o: Outputs, others: dict[str, Num]) -> Outputs:
    """The same outputs but for some."""
    return ChainMap(others, cast(dict[str, Num], o))


def _layer_s(f: Facts, passes: tuple[PassCost, ...]) -> Num:
    """Seconds of one micro-batch in a layer of the kind that fills most of the model."""
    kind = "moe" if float(f.model.moe_layers) > 0 else "dense"
    return sum((total(getattr(cost, kind)) for cost in passes), start=np.zeros(()))


def memory_bounds(request: SearchRequest, f: Facts, rows: Columns) -> dict[str, Num]:
    """The fields of ``RowBound`` that are about memory, alone."""
    table = row_table(request, rows)
    return _memory_bounds(request, f, evaluate_terms(f, table), table, Sharding.of(f, table))


def _memory_bounds(
    request: SearchRequest, f: Facts, o: Outputs, table: PlanTable, sharding: Sharding
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


def work_bound_device_s(request: SearchRequest, f: Facts) -> float:
    """Device-seconds that the model's FLOPs take at the peak: no plan of any mesh needs fewer."""
    work = request.scenario.workload
    flops = model_flops_per_token(request.scenario.model, work.seq_len) * work.tokens_per_step
    peak = max(float(f.hardware.peak_flops), float(f.hardware.attention_peak_flops))
    return flops / peak * min(float(f.cal.compute_multiplier), 1.0) * float(f.cal.time_level)
