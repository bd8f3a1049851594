"""Plans held against stages: what follows from a plan alone is worked out once, and many stages are priced with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Ints, Num, num, per_stage
from costmodel.expert_overlap import overlapped_share, overlaps_experts, with_expert_overlap
from costmodel.facts import Facts
from costmodel.layers import (
    PassCost,
    backward_cost,
    forward_cost,
    total,
)
from costmodel.memory import stage_memory
from costmodel.offload import Offload, onto_hosts, with_offload
from costmodel.sharded_layers import with_sharded_parameters
from costmodel.sharding import Sharding
from costmodel.stage_work import StageWork
from costmodel.table import PlanTable, StageTable
from costmodel.term_outputs import evaluate_terms
from costmodel.terms.term import Outputs


@dataclass(frozen=True, kw_only=True)
class StageTimes:
    """The parts of the closed form for stages of which nobody knows yet which of them a plan has.

    Attributes:
        ends_s: ``(rows, stages)`` seconds until each stage is done if it never waits.
        work_s: of it those of one micro-batch.
    """

    ends_s: Num
    work_s: Num
    _work: StageWork

    @property
    def hides_s(self) -> tuple[Num, Num]:
        """``(rows, stages)`` of the first forward and the last backward pass what exchanges once a step hide under."""
        return self._work.hides

    def again_s(self, dense_again: Num, moe_again: Num) -> Num:
        """Seconds of one micro-batch in the forward passes of so many (dense, MoE) layers that run again, by row."""
        return self._work.again_s(dense_again, moe_again)

    def step_time_s(self, slowest_s: Num, again_s: Num) -> Num:
        """Seconds of a step, by row.

        Args:
            slowest_s: of ``ends_s`` the largest of the plan's stages.
            again_s: of the layers of all its stages that run again.
        """
        return self._work.step_of(slowest_s, self._work.waiting_with(again_s))

    def slowest_s(self, step_time_s: Num, again_s: Num) -> Num:
        """What the slowest stage may take where the step is to take no longer than ``step_time_s``."""
        f = self._work.f
        return step_time_s / f.cal.time_level - self._work.waiting_with(again_s) - f.cal.fixed_step_s


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanCosts:
    """What follows from plans whatever their stages hold: worked out once, to be held against many stages.

    Attributes:
        outputs: of all terms, as ``evaluate_terms`` has them.
    """

    f: Facts
    table: PlanTable
    outputs: Outputs
    sharding: Sharding
    offload: Offload | None

    @classmethod
    def of(cls, f: Facts, table: PlanTable) -> PlanCosts:
        """Of the plans of a table."""
        sharding = Sharding.of(f, table)
        offload = Offload.of(f, table, sharding)
        return cls(f=f, table=table, outputs=evaluate_terms(f, table), sharding=sharding, offload=offload)

    def times(self, stages: StageTable) -> StageTimes:
        """Price stages one by one. They say how many of their layers run again; arrays may be one row for all plans."""
        work, shape = self.work(stages), (len(self.table), stages.index.shape[-1])
        return StageTimes(
            ends_s=np.broadcast_to(work.ends, shape), work_s=np.broadcast_to(work.work, shape), _work=work
        )

    def unlike_chunks_s(self, chunks: StageTable) -> Num:
        """Seconds that each step waits because its virtual stages are unlike, at the calibration's level."""
        nothing = np.zeros((1, 1))
        again = None if chunks.recomputed_dense is None else nothing
        whole = StageTable(
            index=nothing,
            dense_layers=nothing,
            moe_layers=nothing,
            has_embedding=nothing,
            has_head=nothing,
            work_share=nothing,
            recomputed_dense=again,
            recomputed_moe=again,
            chunks=chunks,
        )
        return self.work(whole).unlike_chunks * self.f.cal.time_level

    def device_bytes(self, stages: StageTable) -> Num:
        """Allocated bytes by row and stage, infinite for one whose offloaded tensors do not fit into its hosts."""
        terms, on_hosts = self.memory(stages)
        return np.where(
            per_stage(self._devices_of_a_host) * on_hosts > self.f.hardware.host_memory, np.inf, total(terms)
        )

    def work(self, stages: StageTable) -> StageWork:
        """What the stages take."""
        return StageWork(self, stages)

    def passes(self, recompute: Ints) -> tuple[PassCost, PassCost]:
        """(forward, backward) of a micro-batch under a policy of recompute."""
        f, o, table, again = self.f, self.outputs, self.table, num(recompute)
        passes = forward_cost(f, o), backward_cost(f, o, again)
        passes = with_expert_overlap(f, o, *passes, overlapped_share(table))
        passes = with_sharded_parameters(f, o, *passes, self.sharding)
        return with_offload(f, o, passes, self.offload, self.sharding, again, num(table["recompute_interval"]))

    def memory(self, stages: StageTable) -> tuple[dict[str, Num], Num]:
        """(terms of memory by stage, bytes of each stage's device in the memory of its host)."""
        f, o, table, sharding = self.f, self.outputs, self.table, self.sharding
        overlapping = overlaps_experts(table["ep_overlap"], table["schedule"])
        terms = stage_memory(
            f,
            o,
            stages,
            sharding=sharding,
            recompute=table["recompute"],
            recompute_interval=num(table["recompute_interval"]),
            schedule=table["schedule"],
            pp=num(table["pp"]),
            vpp=num(table["vpp"]),
            num_microbatches=num(table["num_microbatches"]),
            overlaps_experts=overlapping,
        )
        if self.offload is None:
            return terms, np.zeros((1, 1))
        return onto_hosts(
            f,
            o,
            stages,
            terms,
            self.offload,
            zero_stage=sharding.zero_stage,
            prefetch=sharding.prefetch,
            recompute=num(table["recompute"]),
            interval=num(table["recompute_interval"]),
            overlaps_experts=overlapping,
        )

    def fullest(self, stages: StageTable) -> tuple[Num, Num]:
        """(bytes of the fullest device, bytes of it in its node's memory, that of all its devices), by row."""
        terms, on_hosts = self.memory(stages)
        return total(terms).max(axis=-1), self.on_one_host(on_hosts.max(axis=-1))

    def on_one_host(self, each: Num) -> Num:
        """Bytes in a node's memory where every device of it has as many there, by row."""
        return np.asarray(self._devices_of_a_host * np.broadcast_to(each, (len(self.table),)))

    @property
    def _devices_of_a_host(self) -> Num:
        return np.minimum(self.f.hardware.devices_per_node, num(self.table.devices_used))
