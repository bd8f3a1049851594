"""Dispatch and combine under the compute of another micro-batch: what stays exposed, and what the overlap costs.

Megatron's ``--overlap-moe-expert-parallel-comm`` runs the forward pass of one micro-batch beside the backward pass of
another, and DualPipe is made for it (DeepSeek-V3, arXiv 2412.19437, section 3.2.1). With C the exchanges of a layer in
both passes and W what it has beside it: compute in both, less what hides other traffic of the same links, and what
waits for other links,

    hidden = paired * min(C, ep_overlap_share * W)
    exposed = C - (1 - ep_overlap_sm_share) * hidden

since the kernels that communicate take multiprocessors from those that compute. ``paired`` is the share of the
micro-batches that run beside another: what a stage runs forward before its first backward pass does not, one
micro-batch more than without the overlap (megatron/core/pipeline_parallel/schedules.py, combined_1f1b.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costmodel.arrays import Bools, Ints, Num, num
from costmodel.facts import Facts
from costmodel.layers import Parts, PassCost, hiding_cost
from costmodel.schedules import CODE
from costmodel.spec.plan import Schedule
from costmodel.table import PlanTable
from costmodel.terms.term import Outputs

_EXCHANGE = "ep_comm"
_NOT_BESIDE = ("host", _EXCHANGE)
_ALWAYS = (CODE["dualpipe"], CODE["dualpipe_v"])


def overlaps_experts(ep_overlap: Ints, schedule: Ints) -> Bools:
    """Where dispatch and combine overlap with another micro-batch: DualPipe always does so."""
    return np.asarray((ep_overlap > 0) | np.isin(schedule, _ALWAYS))


def paired_share(pp: Num, vpp: Num, num_microbatches: Num) -> Num:
    """Share of a micro-batch's chunks that run beside another micro-batch's, on the first stage: the least paired."""
    alone = np.where(vpp > 1.0, 2.0 * (pp - 1.0) + (vpp - 1.0) * pp, pp - 1.0) + 1.0
    return np.maximum(1.0 - alone / (num_microbatches * vpp), 0.0)


def overlapped_share(table: PlanTable, *, schedules: Sequence[Schedule] = ()) -> Num:
    """Share of the micro-batches of each plan whose exchanges overlap.

    Args:
        schedules: others that the plans may follow; those that overlap most count.
    """
    overlaps = overlaps_experts(table["ep_overlap"], table["schedule"])
    if any(CODE[schedule] in _ALWAYS for schedule in schedules):
        overlaps = np.ones_like(overlaps)
    return overlaps * paired_share(num(table["pp"]), num(table["vpp"]), num(table["num_microbatches"]))


def with_expert_overlap(
    f: Facts, o: Outputs, forward: PassCost, backward: PassCost, overlapped: Num
) -> tuple[PassCost, PassCost]:
    """Both passes with what stays exposed of their exchanges, when ``overlapped`` of the micro-batches hide them."""
    if not (overlapped > 0).any():
        return forward, backward
    ahead, back = forward.moe[_EXCHANGE], backward.moe[_EXCHANGE]
    comm = ahead + back
    under = hiding_cost(forward, o, backward=False, traffic="ep"), hiding_cost(backward, o, backward=True, traffic="ep")
    work = sum((_beside(cost.moe) for cost in under), start=np.zeros(()))
    hidden = overlapped * np.minimum(comm, f.cal.ep_overlap_share * np.maximum(work, 0.0))
    left = comm - (1.0 - f.cal.ep_overlap_sm_share) * hidden
    share = np.where(comm > 0, left / np.where(comm > 0, comm, 1.0), 1.0)
    return (
        replace(forward, moe=forward.moe | {_EXCHANGE: ahead * share}),
        replace(backward, moe=backward.moe | {_EXCHANGE: back * share}),
    )


def _beside(parts: Parts) -> Num:
    """Seconds of another micro-batch that the exchange has beside it."""
    return sum((seconds for name, seconds in parts.items() if name not in _NOT_BESIDE), start=np.zeros(()))
