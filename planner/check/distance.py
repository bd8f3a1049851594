"""How far plans are from a given one: first how many axes differ, then by how many doublings.

An axis that has to follow another one is not counted: the number of micro-batches follows batch, micro-batch and dp;
the schedule follows vpp; layers follow pp and vpp; sequence parallelism and the CP exchange follow tp and cp; shards
over all replicas follow dp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Bools, Ints, Num, num
from costmodel.plan_rows import encode, layout_of
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from costmodel.stages import Layout

DEGREES: tuple[str, ...] = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch_size")
OWN_LAYERS = -1
"""The code, in place of one of ``Layout``, of layers that the plan itself brings."""

_DIGITS = 9


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The plan from which distances are measured, as the numbers of a row.

    Attributes:
        row: its axes; ``layout`` is ``OWN_LAYERS`` for layers that no layout has.
        recomputes_in_part: whether it recomputes as no plan of the search does.
        wrong_microbatches: whether its micro-batches do not follow from its own batch, micro-batch and dp.
    """

    row: Mapping[str, int]
    sequence_parallel: bool
    recomputes_in_part: bool
    offloads: bool
    wrong_microbatches: bool

    @classmethod
    def of(cls, plan: Plan, scenario: Scenario, *, recomputes_in_part: bool) -> Reference:
        """The reference that a plan is, legal or not."""
        layout = layout_of(plan, scenario.model.num_layers)
        row = encode(plan, Layout.EVEN) | {"layout": OWN_LAYERS if layout is None else int(layout)}
        follows = max(scenario.workload.global_batch_size // (plan.micro_batch_size * plan.dp), 1)
        return cls(
            row=row,
            sequence_parallel=plan.sequence_parallel,
            recomputes_in_part=recomputes_in_part,
            offloads=plan.offload != "none",
            wrong_microbatches=plan.num_microbatches != follows,
        )


def changed(reference: Reference, columns: Mapping[str, Ints]) -> dict[str, Bools]:
    """For every axis that may count, the rows that differ from the reference in it.

    Columns that lack some axes, as meshes do before anything is chosen inside them, are compared in those they have.
    """
    own = reference.row
    found = {axis: np.asarray(columns[axis] != own[axis]) for axis in (*DEGREES, "zero_stage") if axis in columns}
    if "zero_stage" in columns:
        found["dp_shard"] = _other_shards(own, columns)
    if "recompute" in columns:
        found["recompute"] = np.asarray((columns["recompute"] != own["recompute"]) | reference.recomputes_in_part)
    follows_tp = (columns["tp"] > 1) != (own["tp"] > 1)
    found["sequence_parallel"] = np.asarray(~follows_tp & ((columns["tp"] > 1) != reference.sequence_parallel))
    found["offload"] = np.full(columns["tp"].shape, reference.offloads)
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


def _other_shards(own: Mapping[str, int], columns: Mapping[str, Ints]) -> Bools:
    """Sharded over another group than the reference: neither as many shards nor as many replicas, nor over all."""
    sharded, everything = columns["zero_stage"] > 0, columns["dp_shard"] == columns["dp"]
    if own["zero_stage"] == 0:
        return np.asarray(sharded & ~everything)
    kept = (columns["dp_shard"] == own["dp_shard"]) | (columns["dp_replicate"] == own["dp_replicate"])
    return np.asarray(sharded & ~kept)


def distances(reference: Reference, columns: Mapping[str, Ints]) -> tuple[Ints, Num]:
    """(axes that differ, doublings of the degrees among them) of every row."""
    differs = changed(reference, columns)
    axes: Ints = np.sum([rows.astype(np.int64) for rows in differs.values()], axis=0)
    doublings = np.zeros(axes.shape)
    for axis in (*DEGREES, "dp_shard", "num_microbatches"):
        if axis in differs:
            ratio = np.abs(np.log2(num(columns[axis]) / reference.row[axis]))
            doublings = doublings + np.where(differs[axis], ratio, 0.0)
    # Sums of logarithms that are meant to be equal differ by rounding.
    return axes, np.round(doublings, _DIGITS)
