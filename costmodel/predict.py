"""PlanTable -> PredictionTable: one code path in numpy for one plan, a whole space, or thousands of unrelated runs.

Step time is a closed form of what the terms give (``costmodel.term_outputs``):

    step = (max_s (m * W_s + R_s + O_s) + waiting + fixed) * level

with W_s the work of device s over all its chunks for one micro-batch, m micro-batches, R_s the exposed part of its
gradient reduction and parameter gathering, O_s its optimizer step, ``waiting`` of the mean device from
``costmodel.schedules``, and the level that the calibration has for this kind of hardware and software.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Ints, Num, num, per_stage
from costmodel.facts import Facts
from costmodel.layers import (
    total,
    weights_cost,
)
from costmodel.plan_costs import PlanCosts
from costmodel.table import PlanTable, StageTable

_ROWS_AT_ONCE = 8192  # keeps the working set of a block in the processor's cache


@dataclass(frozen=True, kw_only=True)
class NeedTable:
    """What plans need, by row.

    Attributes:
        peak_bytes: allocated bytes on the fullest stage.
        host_bytes: bytes of offloaded tensors that a node's memory holds, all devices of the fullest stage together.
    """

    peak_bytes: Num
    host_bytes: Num

    def device_bytes(self, f: Facts) -> Num:
        """The peak on a device; infinite where what is offloaded does not fit into the hosts."""
        return np.where(self.host_bytes > f.hardware.host_memory, np.inf, self.peak_bytes)

    def lack(self, f: Facts, usable: float | Num) -> Num:
        """What is needed beyond ``usable`` bytes of a device, and beyond a host, each over what there is, added up.

        0 where both have the room.
        """
        device = self.peak_bytes / np.maximum(usable, 1.0)
        return np.maximum(device - 1.0, 0.0) + np.maximum(self.host_bytes / f.hardware.host_memory - 1.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class PredictionTable(NeedTable):
    """What plans take and need, by row.

    Attributes:
        step_time_s: seconds of one optimizer step.
    """

    step_time_s: Num


@dataclass(frozen=True, kw_only=True)
class StagePrediction:
    """The full form of the same: every stage, every part.

    Attributes:
        time: part -> ``(rows,)`` seconds on the critical device; the parts sum to ``step_time_s``.
        memory: term -> ``(rows, stages)`` bytes.
        critical_stage: position in the stage table of the device that ends the step.
    """

    step_time_s: Num
    peak_bytes: Num
    host_bytes: Num
    time: Mapping[str, Num]
    memory: Mapping[str, Num]
    critical_stage: Ints


def predict(f: Facts, table: PlanTable, stages: StageTable) -> PredictionTable:
    """The ranking form."""
    step, peak, host = np.empty(len(table)), np.empty(len(table)), np.empty(len(table))
    for rows, plans, some in _blocks(f, table, stages):
        step[rows] = plans.work(some).step_time_s
        peak[rows], host[rows] = plans.fullest(some)
    return PredictionTable(step_time_s=step, peak_bytes=peak, host_bytes=host)


def predict_needs(f: Facts, table: PlanTable, stages: StageTable) -> NeedTable:
    """The part of the ranking form that is about memory: quicker, where nobody asks how long plans take."""
    peak, host = np.empty(len(table)), np.empty(len(table))
    for rows, plans, some in _blocks(f, table, stages):
        peak[rows], host[rows] = plans.fullest(some)
    return NeedTable(peak_bytes=peak, host_bytes=host)


def _blocks(f: Facts, table: PlanTable, stages: StageTable) -> Iterator[tuple[slice, PlanCosts, StageTable]]:
    """Plans with their stages, in parts that stay in the processor's cache."""
    for start in range(0, len(table), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        yield rows, PlanCosts.of(f.take(rows), table.take(rows)), stages.take(np.arange(len(table))[rows])


def predict_stages(f: Facts, table: PlanTable, stages: StageTable) -> StagePrediction:
    """The full breakdown."""
    plans = PlanCosts.of(f, table)
    work = plans.work(stages)
    memory, on_hosts = plans.memory(stages)
    return StagePrediction(
        step_time_s=work.step_time_s,
        peak_bytes=total(memory).max(axis=-1),
        host_bytes=plans.on_one_host(on_hosts.max(axis=-1)),
        time=work.breakdown(),
        memory=memory,
        critical_stage=work.critical,
    )


@dataclass(frozen=True, kw_only=True)
class StageParts:
    """What stages take, piece by piece; nothing here knows of a schedule. Seconds, at the calibration's level.

    Attributes:
        forward_s, backward_s: ``(rows, stages)``, of one micro-batch.
        weights_s: ``(rows, stages)``, of a backward pass what makes the gradients of weights.
        exchange_s: ``(rows, stages)``, of the gradients and parameters at the end of the step, where exposed.
        update_s: ``(rows, stages)``, the optimizer and what follows it.
        transfer_s: ``(rows,)``, an activation or a gradient on its way to the next stage.
        transfer_exposed_s: ``(rows,)``, of that what its sender can't compute under.
        host_s: ``(rows,)``, what surrounds one pass of one micro-batch through one chunk.
        fixed_s: ``(rows,)``, once a step.
    """

    forward_s: Num
    backward_s: Num
    weights_s: Num
    exchange_s: Num
    update_s: Num
    transfer_s: Num
    transfer_exposed_s: Num
    host_s: Num
    fixed_s: Num


def stage_parts(f: Facts, table: PlanTable, stages: StageTable) -> StageParts:
    """The parts of a step for any stages: whole devices, or their chunks one by one."""
    work = PlanCosts.of(f, table).work(stages)
    shape, level, passes = (len(table), stages.index.shape[-1]), f.cal.time_level, 2.0 * num(table["vpp"])

    def leveled(seconds: Num, *, by_stage: bool = True) -> Num:
        whole = per_stage(level) * seconds if by_stage else level * seconds
        return np.broadcast_to(whole, shape if by_stage else shape[:1])

    return StageParts(
        forward_s=leveled(work.stage(work.forward)),
        backward_s=leveled(work.stage(work.backward, work.again)),
        weights_s=leveled(work.stage(weights_cost(work.o))),
        exchange_s=leveled(work.reduction),
        update_s=leveled(work.optimizer + work.quantised_weights + work.host_waits),
        transfer_s=leveled(work.o["pp_boundary_s"], by_stage=False),
        transfer_exposed_s=leveled(work.boundary / passes, by_stage=False),
        host_s=leveled(work.host / passes, by_stage=False),
        fixed_s=leveled(f.cal.fixed_step_s, by_stage=False),
    )


def step_times(f: Facts, table: PlanTable, stages: StageTable) -> Num:
    """Seconds of one step by row, where nobody asks what it needs."""
    return PlanCosts.of(f, table).work(stages).step_time_s


def memory_by_stage(f: Facts, table: PlanTable, stages: StageTable) -> Num:
    """Allocated bytes by row and stage, where nobody asks how long it takes."""
    return total(PlanCosts.of(f, table).memory(stages)[0])
