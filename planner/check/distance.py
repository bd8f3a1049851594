"""How far plans are from a given one, in steps: one for every axis that differs, one more for every doubling of it.

Only what somebody would have to decide is counted. An axis that follows another one is free: dp follows from the
devices and tp * cp * pp, the number of micro-batches from batch, micro-batch and dp; the schedule follows vpp; layers
follow pp and vpp; sequence parallelism and the CP exchange follow tp and cp; shards over all replicas follow dp; etp
that is tp follows tp; when gradients are reduced follows the sharding, and how many ranks exchange heads follows the
exchange, where both plans have what is usual. What contradicts the rest of its own plan counts once it is put right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Bools, Ints, Num, num
from costmodel.plan_rows import encode, layout_of
from costmodel.rules.context_parallel import uses_hybrid
from costmodel.rules.rule import as_columns
from costmodel.scenario import Scenario
from costmodel.spec.options import OPTION_NAMES
from costmodel.spec.plan import Plan
from costmodel.stages import Layout
from costmodel.usual_options import usual_codes

DEGREES: tuple[str, ...] = ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch_size")
OWN_LAYERS = -1
"""The code, in place of one of ``Layout``, of layers that the plan itself brings."""

# What is usual of these follows the sharding and the CP exchange.
_FOLLOWING_OPTIONS = ("gradient_sync", "cp_a2a_degree")
_COUNTED_OPTIONS = tuple(name for name in OPTION_NAMES if name not in _FOLLOWING_OPTIONS)
_DIGITS = 9


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The plan from which distances are measured, as the numbers of a row.

    Attributes:
        scenario: what is usual depends on it.
        row: its axes; ``layout`` is ``OWN_LAYERS`` for layers that no layout has.
        devices: what dp may follow from: the devices that the plan uses, and those at hand.
        recomputes_in_part: whether it recomputes as no plan of the search does.
        wrong_microbatches: whether its micro-batches do not follow from its own batch, micro-batch and dp.
        wrong_shards: whether its shards and replicas are not dp, or shards are told where nothing is sharded.
        wrong: other fields that contradict the plan or its scenario, and that every plan of the search puts right.
        zero_once_sharded: the stage that follows as soon as there are ranks to shard over; None where it was given.
    """

    scenario: Scenario
    row: Mapping[str, int]
    devices: tuple[int, ...]
    sequence_parallel: bool
    recomputes_in_part: bool
    wrong_microbatches: bool
    wrong_shards: bool
    wrong: frozenset[str]
    zero_once_sharded: int | None

    @classmethod
    def of(
        cls, plan: Plan, scenario: Scenario, *, recomputes_in_part: bool, zero_once_sharded: int | None = None
    ) -> Reference:
        """The reference that a plan is, legal or not."""
        layout = layout_of(plan, scenario.model.num_layers)
        if plan.layers_per_chunk and tuple(map(sum, plan.layers_per_chunk)) != plan.layers_per_stage:
            layout = None
        row = encode(scenario, plan, Layout.EVEN) | {"layout": OWN_LAYERS if layout is None else int(layout)}
        follows = max(scenario.workload.global_batch_size // (plan.micro_batch_size * plan.dp), 1)
        mesh = plan.tp * plan.cp * plan.dp * plan.pp
        work = scenario.workload
        facts = {
            "devices_used": mesh,
            "global_batch_size": work.global_batch_size,
            "seq_len": work.seq_len,
            "precision": work.precision.name,
            "optimizer": work.optimizer.name,
            "gradient_dtype": scenario.gradients,
            "framework": scenario.framework.name,
        }
        return cls(
            scenario=scenario,
            row=row,
            devices=(min(mesh, scenario.devices), scenario.devices),
            sequence_parallel=plan.sequence_parallel,
            recomputes_in_part=recomputes_in_part or _recomputes_too_much(plan),
            wrong_microbatches=plan.num_microbatches != follows,
            wrong_shards=plan.dp_replicate * plan.dp_shard != plan.dp or (plan.zero_stage == 0 and plan.dp_shard > 1),
            wrong=frozenset(name for name, value in facts.items() if getattr(plan, name) != value),
            zero_once_sharded=zero_once_sharded,
        )


def _recomputes_too_much(plan: Plan) -> bool:
    again, layers = plan.recomputed_layers_per_stage, plan.layers_per_stage
    beyond = len(again) != len(layers) or any(some > all_ for some, all_ in zip(again, layers, strict=False))
    return beyond or (plan.recompute == "none" and any(again))


def changed(reference: Reference, columns: Mapping[str, Ints]) -> dict[str, Bools]:
    """For every axis that may count, the rows that differ from the reference in it.

    Columns that lack some axes, as meshes do before anything is chosen inside them, are compared in those they have.
    """
    own = reference.row
    found = {axis: np.asarray(columns[axis] != own[axis]) for axis in DEGREES if axis in columns}
    found["etp"] = found["etp"] & ~((own["etp"] == own["tp"]) & (columns["etp"] == columns["tp"]))
    found["dp"] = np.asarray(_dp_doublings(reference, columns) > 0)
    found |= {name: np.ones(columns["tp"].shape, dtype=np.bool_) for name in reference.wrong}
    if "zero_stage" in columns:
        found["zero_stage"] = _other_stage(reference, columns)
        found["dp_shard"] = _other_shards(reference, columns)
    if "recompute" in columns:
        other = np.asarray(columns["recompute"] != own["recompute"])
        if "recompute_modules" in columns:
            other |= np.asarray((columns["recompute_modules"] != own["recompute_modules"]) & ~other)
        found["recompute"] = other | reference.recomputes_in_part
    follows_tp = (columns["tp"] > 1) != (own["tp"] > 1)
    found["sequence_parallel"] = np.asarray(~follows_tp & ((columns["tp"] > 1) != reference.sequence_parallel))
    # Without sequence parallelism nothing overlaps: whether it does then follows too.
    counted = (name for name in _COUNTED_OPTIONS if name != "tp_overlap" or reference.sequence_parallel)
    found |= {name: np.asarray(columns[name] != own[name]) for name in counted if name in columns}
    found |= {name: _other_option(reference, columns, name) for name in _FOLLOWING_OPTIONS if name in columns}
    found["num_microbatches"] = np.asarray(
        reference.wrong_microbatches & (columns["num_microbatches"] != own["num_microbatches"])
    )
    if "cp_comm_type" in columns:
        same_use = (columns["cp"] > 1) == (own["cp"] > 1)
        found["cp_comm_type"] = np.asarray(same_use & (columns["cp_comm_type"] != own["cp_comm_type"]))
    if "schedule" in columns:
        same_chunks = (columns["vpp"] == own["vpp"]) & ((columns["pp"] > 1) == (own["pp"] > 1))
        found["schedule"] = np.asarray(same_chunks & (columns["schedule"] != own["schedule"]))
        same_stages = (columns["pp"] == own["pp"]) & (columns["vpp"] == own["vpp"])
        found["layers_per_stage"] = np.asarray(same_stages & (columns["layout"] != own["layout"]))
    return found


def _other_option(reference: Reference, columns: Mapping[str, Ints], name: str) -> Bools:
    """Another value than the reference's, where not both are what is usual beside the other axes."""
    own = reference.row
    own_usual = int(usual_codes(reference.scenario, as_columns(own), (name,))[name])
    usual = usual_codes(reference.scenario, columns, (name,))[name]
    other = (columns[name] != own[name]) & ~((own[name] == own_usual) & (columns[name] == usual))
    if name == "cp_a2a_degree" and uses_hybrid(as_columns(own)):
        # Without a second exchange there is nothing to choose.
        other &= uses_hybrid(columns)
    return np.asarray(other)


def _dp_doublings(reference: Reference, columns: Mapping[str, Ints]) -> Num:
    """Between dp and what it would be by itself: the plan's own, or what other degrees leave of the devices."""
    own = reference.row
    unit, own_unit = columns["tp"] * columns["cp"] * columns["pp"], own["tp"] * own["cp"] * own["pp"]
    off = []
    for devices in reference.devices:
        by_itself = np.where(unit == own_unit, own["dp"], np.maximum(devices // unit, 1))
        off.append(np.abs(np.log2(num(columns["dp"]) / by_itself)))
    return np.asarray(np.minimum(*off))


def _other_stage(reference: Reference, columns: Mapping[str, Ints]) -> Bools:
    follows = (columns["dp"] * columns["cp"] > 1) & (columns["zero_stage"] == (reference.zero_once_sharded or 0))
    return np.asarray(
        (columns["zero_stage"] != reference.row["zero_stage"]) & ~(follows & (reference.zero_once_sharded is not None))
    )


def _other_shards(reference: Reference, columns: Mapping[str, Ints]) -> Bools:
    """Sharded over another group than the reference: neither as many shards nor as many replicas, nor over all."""
    own = reference.row
    sharded, everything = columns["zero_stage"] > 0, columns["dp_shard"] == columns["dp"]
    same_shards, same_replicas = columns["dp_shard"] == own["dp_shard"], columns["dp_replicate"] == own["dp_replicate"]
    if own["zero_stage"] == 0 and own["dp_shard"] == 1:
        other = sharded & ~everything
    else:
        other = sharded & ~(same_shards | same_replicas)
    both_kept = same_shards & same_replicas
    return np.asarray(other | (reference.wrong_shards & (columns["dp"] == own["dp"]) & ~both_kept))


def distances(reference: Reference, columns: Mapping[str, Ints]) -> tuple[Ints, Num]:
    """(axes that differ, doublings of the degrees among them) of every row."""
    differs = changed(reference, columns)
    axes: Ints = np.sum([rows.astype(np.int64) for rows in differs.values()], axis=0)
    doublings = _dp_doublings(reference, columns)
    for axis in (*DEGREES, "dp_shard", "num_microbatches"):
        if axis in differs:
            ratio = np.abs(np.log2(num(columns[axis]) / reference.row[axis]))
            doublings = doublings + np.where(differs[axis], ratio, 0.0)
    # Sums of logarithms that are meant to be equal differ by rounding.
    return axes, np.round(doublings, _DIGITS)


def steps_of(axes: Ints, doublings: Num) -> Num:
    """One number: an axis that changes is a step, and so is every doubling or halving of a degree."""
    return np.round(num(axes) + doublings, _DIGITS)
