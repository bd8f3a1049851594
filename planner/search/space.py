"""The space that is searched: axis domains, and the meshes that the devices and the batch allow.

A *mesh* is (tp, cp, pp, dp, ep, etp, micro-batch size): what top-k entries differ in and what ``eliminated`` counts.
What varies inside one mesh are the *inner* axes: virtual stages and layout, what is sharded and how far, recompute,
how CP communicates. The options of a plan are one axis, ``options``: the place among ``option_choices``.

Default domains (a pin may name values outside them): tp divides the heads and stays within one scale-up domain (at
least a node); cp leaves whole pairs of chunks of at least ``_LEAST_TOKENS_PER_RANK`` tokens; ep divides the experts;
etp is 1 or tp; dp divides the global batch; vpp up to ``MOST_CHUNKS``; micro-batches up to ``LARGEST_MICRO_BATCH``
sequences. Pipelines, context parallelism and selective recompute only where the framework has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from costmodel.arrays import Ints
from costmodel.errors import InvalidInput
from costmodel.rules import rules_for
from costmodel.schedules import placement_of
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES
from costmodel.stages import Layout, layers_per_chunk
from planner.search.request import SearchRequest

MESH_AXES: tuple[str, ...] = ("tp", "cp", "pp", "dp", "ep", "etp", "micro_batch_size", "num_microbatches")
STAGE_AXES: tuple[str, ...] = ("vpp", "layout", "schedule")
SHARD_AXES: tuple[str, ...] = ("zero_stage", "dp_replicate", "dp_shard")
POLICY_AXES: tuple[str, ...] = ("recompute", "options")
ROW_AXES: tuple[str, ...] = (*MESH_AXES, *SHARD_AXES, *POLICY_AXES)

Columns: TypeAlias = dict[str, Ints]
"""Meshes (columns of ``MESH_AXES``) or rows (columns of ``ROW_AXES``)."""

_LEAST_TOKENS_PER_RANK = 512
MOST_CHUNKS = 16
LARGEST_MICRO_BATCH = 64
_MOST_MESHES = 5_000_000


@lru_cache(maxsize=65536)
def divisors(value: int) -> tuple[int, ...]:
    """All positive divisors, ascending."""
    small = [d for d in range(1, int(value**0.5) + 1) if value % d == 0]
    return tuple(sorted({*small, *(value // d for d in small)}))


@dataclass(frozen=True, kw_only=True)
class Domains:
    """The values of each mesh axis; ``dp`` and ``micro_batch_size`` follow from the devices and the batch."""

    tp: tuple[int, ...]
    cp: tuple[int, ...]
    pp: tuple[int, ...]
    ep: tuple[int, ...]
    etp: tuple[int, ...]


def domains(request: SearchRequest) -> Domains:
    """Default and pinned values of the mesh axes, less what is forbidden."""
    scenario, constraints = request.scenario, request.constraints
    model, devices = scenario.model, scenario.devices
    near = max(scenario.cluster.scale_up_devices, scenario.cluster.devices_per_node)
    seq, framework = scenario.workload.seq_len, scenario.framework
    longest = seq // _LEAST_TOKENS_PER_RANK if framework.cp_comm_types else 1
    deepest = model.num_layers if framework.schedules else 1
    cp = [c for c in divisors(seq) if c == 1 or (seq % (2 * c) == 0 and c <= longest)]

    def within(values: Iterable[int]) -> list[int]:
        return [value for value in values if value <= devices]

    tp = within(t for t in divisors(model.num_heads) if t <= near)
    experts = divisors(model.moe.num_experts) if model.moe else (1,)
    return Domains(
        tp=constraints.needed("tp", tp),
        cp=constraints.needed("cp", within(cp)),
        pp=constraints.needed("pp", within(range(1, deepest + 1))),
        ep=constraints.needed("ep", within(experts)),
        etp=constraints.needed("etp", [1, *tp] if model.moe else [1]),
    )


def mesh_candidates(request: SearchRequest) -> Columns:
    """Every mesh of the space as columns of ``MESH_AXES``, legal or not.

    Structure only: the devices in use lie between the least wanted and those at hand, and ep * etp fits. Where no
    divisor of the batch fits into that range, the largest dp that does is kept once, so that the batch can be named
    as the reason.
    """
    scenario, constraints = request.scenario, request.constraints
    d = domains(request)
    batch, most, least = scenario.workload.global_batch_size, scenario.devices, request.least_devices
    batch_divisors = divisors(batch)
    dp_values = constraints.domain("dp", batch_divisors)
    experts = np.array([(ep, etp) for ep in d.ep for etp in d.etp], dtype=np.int64).reshape(-1, 2)
    sizes = np.array(
        constraints.needed("micro_batch_size", [b for b in batch_divisors if b <= LARGEST_MICRO_BATCH]), dtype=np.int64
    )
    most_dense = _MOST_MESHES // max(len(experts) * len(sizes), 1)
    dense: list[tuple[int, int, int, int]] = []
    for tp in d.tp:
        for cp in d.cp:
            for pp in d.pp:
                unit = tp * cp * pp
                low, high = -(-least // unit), most // unit
                if high < max(low, 1):
                    continue
                fits = [dp for dp in dp_values if low <= dp <= high]
                for dp in fits or [dp for dp in (high,) if constraints.allows("dp", dp)]:
                    if constraints.allows("devices_used", unit * dp):
                        dense.append((tp, cp, pp, dp))
                if len(dense) > most_dense:
                    hint = "pin an axis (--pin tp=8) or raise --min-used"
                    raise InvalidInput("space", f"over {_MOST_MESHES} meshes", f"so many are not searched; {hint}")
    if not dense:
        return {axis: np.zeros(0, dtype=np.int64) for axis in MESH_AXES}
    base = np.array(dense, dtype=np.int64)
    rows, pairs, batches = (a.ravel() for a in np.indices((len(base), len(experts), len(sizes))))
    tp, cp, pp, dp = base[rows].T
    ep, etp = experts[pairs].T
    size = sizes[batches]
    # A micro-batch larger than a replica's share is no candidate, except the smallest, which stands for the batch rule.
    keep = (size * dp <= batch) | (batches == 0)
    # Where pins leave no stage with ranks enough for the experts, the meshes stay, so that the rule can be named.
    enough_ranks = ep * etp <= tp * cp * dp
    if scenario.framework.rules is None or (keep & enough_ranks).any():
        keep &= enough_ranks
    # etp is 1 or tp unless pinned: other splits of a narrow expert only add communication.
    if constraints.pinned("etp") is None:
        keep &= (etp == 1) | (etp == tp)
    columns = dict(zip(MESH_AXES, (tp, cp, pp, dp, ep, etp, size, np.maximum(batch // (size * dp), 1)), strict=True))
    if constraints.touches("num_microbatches"):
        counts = np.unique(columns["num_microbatches"]).tolist()
        keep &= np.isin(columns["num_microbatches"], [m for m in counts if constraints.allows("num_microbatches", m)])
    return {axis: column[keep] for axis, column in columns.items()}


def stage_options(request: SearchRequest, pp: int) -> tuple[tuple[int, int, int], ...]:
    """(vpp, layout, schedule) for one pipeline depth: chunk counts that the layers allow, each distinct layout once."""
    return _stage_options(request.of_any_size, pp)


@lru_cache(maxsize=4096)
def _stage_options(request: SearchRequest, pp: int) -> tuple[tuple[int, int, int], ...]:
    constraints, layers = request.constraints, request.scenario.model.num_layers
    deepest = min(MOST_CHUNKS, max(1, (layers + 2) // pp)) if pp > 1 else 1
    names = request.scenario.framework.schedules
    predicts = request.scenario.model.num_mtp_layers > 0
    # Without a pipeline there is nothing to schedule: pp 1 is 1f1b under every framework.
    offered = names if pp > 1 and names else (*names, "1f1b")
    schedules = constraints.needed("schedule", [SCHEDULES.index(name) for name in offered])
    rule = next(rule for rule in rules_for(request.scenario.framework) if rule.name == "schedule_fits_chunks")

    def fits(vpp: int, schedule: int) -> bool:
        # A pinned combination that does not fit stays, so that the rule can be named.
        asked = constraints.pinned("vpp") is not None and constraints.pinned("schedule") is not None
        row = {"pp": np.array(max(pp, 2)), "vpp": np.array(vpp), "schedule": np.array(schedule)}
        return asked or bool(rule.holds(request.scenario, row))

    found: list[tuple[int, int, int]] = []
    for vpp in constraints.domain("vpp", range(1, deepest + 1)):
        fitting = [schedule for schedule in schedules if fits(vpp, schedule)]
        if vpp > 1 and pp * vpp > layers + 2:
            # Pinned beyond what the layers allow: one option stays, so that the rule can be named.
            found.extend((vpp, int(Layout.EVEN), schedule) for schedule in fitting)
            continue
        seen: set[object] = set()
        for layout in Layout:
            if layout == Layout.MTP_AND_LOSSES_COUNT and not predicts:
                continue
            for schedule in fitting:
                chunks = layers_per_chunk(layers, pp, vpp, layout, placement_of(SCHEDULES[schedule]))
                if chunks is not None and (schedule, chunks) not in seen:
                    seen.add((schedule, chunks))
                    found.append((vpp, int(layout), schedule))
    if not found and pp > 1 and constraints.pinned("schedule") is not None:
        # So that the rule can be named.
        counts = constraints.domain("vpp", range(1, deepest + 1))[:1]
        found = [(vpp, int(Layout.EVEN), schedule) for vpp in counts for schedule in schedules]
    return tuple(found)


def legal_zero_stages(request: SearchRequest) -> tuple[int, ...]:
    """Stages that pins leave and that no rule on the stage alone refuses; all that pins leave when none is legal."""
    scenario = request.scenario
    stages = request.constraints.needed("zero_stage", scenario.framework.zero_stages)
    column = np.array(stages, dtype=np.int64)
    legal = np.ones(len(stages), dtype=np.bool_)
    for rule in rules_for(scenario.framework):
        if rule.axes == ("zero_stage",):
            legal &= rule.holds(scenario, {"zero_stage": column})
    return tuple(column[legal].tolist()) or stages


@lru_cache(maxsize=65536)
def sharding_options(request: SearchRequest, tp: int, cp: int, dp: int) -> tuple[tuple[int, int, int], ...]:
    """(zero_stage, dp_replicate, dp_shard) for one degree of data parallelism.

    Nothing sharded, or shards over all replicas, or within one scale-up domain.
    """
    constraints, scenario = request.constraints, request.scenario
    stages = constraints.needed("zero_stage", scenario.framework.zero_stages)
    shards = {dp}
    inside = [s for s in divisors(dp) if 1 < s < dp and tp * cp * s <= scenario.cluster.scale_up_devices]
    shards.update(inside[-1:])
    shards.update(value for value in constraints.pinned("dp_shard") or () if dp % value == 0)
    shards.update(dp // value for value in constraints.pinned("dp_replicate") or () if dp % value == 0)
    found: list[tuple[int, int, int]] = []
    for zero in stages:
        for shard in sorted({1} if zero == 0 else shards, reverse=True):
            # Shards of one rank cut nothing: stage 0 says the same.
            if zero > 0 and shard == 1 and dp > 1:
                continue
            replicas = dp // shard
            if constraints.allows("dp_shard", shard) and constraints.allows("dp_replicate", replicas):
                found.append((zero, replicas, shard))
    return tuple(found)


@lru_cache(maxsize=256)
def offered_cp_comm(request: SearchRequest) -> tuple[int, ...]:
    """Codes of the CP exchanges that pins leave and that no rule on the exchange alone refuses.

    All that pins leave when none is legal; ``p2p`` where the framework has no context parallelism, so that the rule
    can be named.
    """
    scenario = request.scenario
    kinds = scenario.framework.cp_comm_types or CP_COMM_TYPES[:1]
    offered = request.constraints.needed("cp_comm_type", [CP_COMM_TYPES.index(kind) for kind in kinds])
    grid = {"cp": np.array([[c] for c in domains(request).cp if c > 1] or [[2]]), "cp_comm_type": np.array([offered])}
    legal = np.ones((len(grid["cp"]), len(offered)), dtype=np.bool_)
    for rule in rules_for(scenario.framework):
        if rule.axes == ("cp", "cp_comm_type"):
            legal &= rule.holds(scenario, grid)
    return tuple(grid["cp_comm_type"][0, legal.any(axis=0)].tolist()) or offered


def recompute_policies(request: SearchRequest) -> tuple[int, ...]:
    """Codes of the recompute policies that the framework has and pins leave.

    A pinned one that it hasn't stays, so that the rule can be named.
    """
    modules = request.scenario.framework.selective_modules or request.constraints.pinned("recompute_modules")
    offered = [code for code, policy in enumerate(RECOMPUTES) if policy != "selective" or modules]
    return request.constraints.needed("recompute", offered)
