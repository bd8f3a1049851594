"""PlanTable -> PredictionTable: one code path in numpy for one plan, a whole space, or thousands of unrelated runs.

Step time is a closed form of what the terms give (``costmodel.term_outputs``):

    step = (max_s (m * W_s + R_s + O_s) + waiting + fixed) * level

with W_s the work of device s over all its chunks for one micro-batch, m micro-batches, R_s the exposed part of its
gradient reduction and parameter gathering, O_s its optimizer step, ``waiting`` of the mean device from
``costmodel.schedules``, and the level that the calibration has for this kind of hardware and software.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from costmodel.arrays import Ints, Num, num, per_stage
from costmodel.end_of_step import exposed_exchanges_s, optimizer_s
from costmodel.expert_overlap import overlapped_share, overlaps_experts, with_expert_overlap
from costmodel.facts import Facts
from costmodel.interleaving import unlike_chunks_s
from costmodel.layers import (
    OFFLOADED,
    QUANTISATION,
    Parts,
    PassCost,
    backward_cost,
    forward_cost,
    hiding_cost,
    model_body_s,
    model_ends_s,
    total,
    weights_cost,
)
from costmodel.memory import stage_memory
from costmodel.offload import Offload, host_step_s, onto_hosts, with_offload
from costmodel.once_a_step import kept_weights_s
from costmodel.saved import mtp_layers_of_kind
from costmodel.schedules import may_wait, waiting_s
from costmodel.sharded_layers import hiding_gathers, with_sharded_parameters
from costmodel.sharding import Sharding
from costmodel.table import PlanTable, StageTable
from costmodel.term_outputs import evaluate_terms
from costmodel.terms.activations import RECOMPUTE_FULL, RECOMPUTE_NONE
from costmodel.terms.term import Outputs

_ROWS_AT_ONCE = 8192  # keeps the working set of a block in the processor's cache
_ROUNDING = 1e-12


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
        forward_s=leveled(work._stage(work.forward)),
        backward_s=leveled(work._stage(work.backward, work.again)),
        weights_s=leveled(work._stage(weights_cost(work.o))),
        exchange_s=leveled(work.reduction),
        update_s=leveled(work.optimizer + work.quantised_weights + work.host_waits),
        transfer_s=leveled(work.o["pp_boundary_s"], by_stage=False),
        transfer_exposed_s=leveled(work.boundary / passes, by_stage=False),
        host_s=leveled(work.host / passes, by_stage=False),
        fixed_s=leveled(f.cal.fixed_step_s, by_stage=False),
    )


@dataclass(frozen=True, kw_only=True)
class StageTimes:
    """The parts of the closed form for stages of which nobody knows yet which of them a plan has.

    Attributes:
        ends_s: ``(rows, stages)`` seconds until each stage is done if it never waits.
        work_s: of it those of one micro-batch.
    """

    ends_s: Num
    work_s: Num
    _work: _Work

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


def step_times(f: Facts, table: PlanTable, stages: StageTable) -> Num:
    """Seconds of one step by row, where nobody asks what it needs."""
    return PlanCosts.of(f, table).work(stages).step_time_s


def memory_by_stage(f: Facts, table: PlanTable, stages: StageTable) -> Num:
    """Allocated bytes by row and stage, where nobody asks how long it takes."""
    return total(PlanCosts.of(f, table).memory(stages)[0])


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

    def work(self, stages: StageTable) -> _Work:
        """What the stages take."""
        return _Work(self, stages)

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


class _Work:
    """Stage times of a block of rows, from the costs of layers and ends."""

    def __init__(self, plans: PlanCosts, stages: StageTable) -> None:
        f, o, table, sharding, offload = plans.f, plans.outputs, plans.table, plans.sharding, plans.offload
        self.f, self.o, self.table, self.stages = f, o, table, stages
        self.all_again = table["recompute"] == RECOMPUTE_FULL
        self.again: PassCost | None = None
        if stages.recomputed_dense is None:
            self.forward, self.backward = plans.passes(table["recompute"])
        else:
            # Of one stage some layers run again and the others do as the policy says of them: two backward passes.
            others = np.where(self.all_again, RECOMPUTE_NONE, table["recompute"])
            self.forward, self.backward = plans.passes(others)
            _, self.again = plans.passes(np.full_like(others, RECOMPUTE_FULL))
        vpp = num(table["vpp"])
        self.m = num(table["num_microbatches"])
        self.mtp_dense, self.mtp_moe = mtp_layers_of_kind(f, moe=False), mtp_layers_of_kind(f, moe=True)
        interleaved = vpp > 1.0
        share = np.where(interleaved, f.cal.pp_exposed_share_interleaved, f.cal.pp_exposed_share)
        # A stage sends one activation forward and one gradient back for every chunk of every micro-batch.
        self.boundary = 2.0 * vpp * o["pp_boundary_s"] * share
        self.host = f.cal.fixed_microbatch_s + vpp * f.cal.fixed_chunk_s
        ahead, back = self._stage(self.forward), self._stage(self.backward, self.again)
        self.work = ahead + back + per_stage(self.boundary + self.host)
        self.unlike_chunks = self._unlike_chunks_s()
        self.waiting = self.waiting_with(self._stages_again_s()) + self.unlike_chunks
        under, under_back = hiding_cost(self.forward, o, backward=False), hiding_cost(self.backward, o, backward=True)
        under_again = None if self.again is None else hiding_cost(self.again, o, backward=True)
        ahead, back = self._stage(under), self._stage(under_back, under_again)
        if (sharding.gathers_ahead & ~sharding.reduces_each).any():
            hiding_ahead, hiding_back = hiding_gathers(f, o, self.forward, self.backward, sharding)
            ahead, back = ahead - self._stage(hiding_ahead), back - self._stage(hiding_back)
        ahead, back = self.hides = np.maximum(ahead, 0.0), np.maximum(back, 0.0)
        self.reduction = exposed_exchanges_s(f, o, stages, sharding, ahead=ahead, back=back, num_microbatches=self.m)
        self.optimizer = optimizer_s(f, o, stages, sharding.zero_stage)
        self.host_waits = np.zeros(())
        if offload is not None:
            self.optimizer, self.host_waits = host_step_s(f, o, stages, sharding, offload, self.optimizer)
        self.quantised_weights = kept_weights_s(f, o, stages, sharding)
        ends = per_stage(self.m) * self.work + self.reduction + self.optimizer + self.quantised_weights
        self.ends: Num = ends + self.host_waits
        self.critical: Ints = self.ends.argmax(axis=-1)
        self.step_time_s = self.step_of(self.ends.max(axis=-1), self.waiting)

    def step_of(self, slowest: Num, waiting: Num) -> Num:
        """What the terms come to, and what steps of this kind of hardware and software take over that."""
        seconds: Num = (slowest + waiting + self.f.cal.fixed_step_s) * self.f.cal.time_level
        return seconds

    def waiting_with(self, again_s: Num) -> Num:
        """Seconds that a device waits where stages say how many layers run again, and these take so long.

        They are those of the mean device; half of what surrounds a micro-batch comes with each pass.
        """
        pp, around = num(self.table["pp"]), (self.boundary + self.host) / 2.0
        ahead_s, back_s, weights_s = self._model_s
        return waiting_s(
            self.table["schedule"],
            pp,
            num(self.table["vpp"]),
            self.m,
            forward=ahead_s / pp + around,
            backward=(back_s + again_s) / pp + around,
            weights=weights_s / pp,
        )

    def _unlike_chunks_s(self) -> Num:
        """Seconds that devices wait because chunks of an interleaved pipeline take unlike times."""
        chunks, table = self.stages.chunks, self.table
        if chunks is None:
            return np.zeros(())
        pp, vpp = table["pp"], table["vpp"]
        rows = np.flatnonzero(may_wait(table["schedule"], pp, vpp) & chunks.differ(pp * vpp))
        found = np.zeros(len(table))
        if len(rows):
            around = per_stage(np.broadcast_to((self.boundary + self.host) / (2.0 * num(vpp)), len(table)))
            ahead, back = self._stage(self.forward, of=chunks), self._stage(self.backward, self.again, of=chunks)
            both = (ahead + around)[rows], (back + around)[rows]
            found[rows] = unlike_chunks_s(pp[rows], vpp[rows], table["num_microbatches"][rows], *both)
        return found

    @cached_property
    def _model_s(self) -> tuple[Num, Num, Num]:
        """Seconds of one micro-batch on all stages: forward, backward, and of that what makes weights' gradients."""
        return self._model(self.forward), self._model(self.backward, self.again), self._model(weights_cost(self.o))

    def again_s(self, dense_again: Num, moe_again: Num) -> Num:
        """Seconds of one micro-batch in the forward passes of so many layers that run again."""
        if self.again is None:
            return np.zeros(())
        dense_more, moe_more = (more[..., 0] if more.ndim else more for more in self._more(self.backward, self.again))
        return dense_again * dense_more + moe_again * moe_more

    def _stages_again_s(self) -> Num:
        """The same of all layers of whose stages it is said that they run again."""
        s = self.stages
        if s.recomputed_dense is None or s.recomputed_moe is None:
            return np.zeros(())
        own = s.is_own * s.work_share
        return self.again_s((own * s.recomputed_dense).sum(axis=-1), (own * s.recomputed_moe).sum(axis=-1))

    def _stage(self, cost: PassCost, again: PassCost | None = None, of: StageTable | None = None) -> Num:
        """Seconds of one micro-batch on each stage; ``again`` is the pass of layers that run forward again."""
        dense, moe, stages = per_stage(total(cost.dense)), per_stage(total(cost.moe)), of or self.stages
        embedding, head = per_stage(total(cost.embedding)), per_stage(total(cost.head))
        mtp = per_stage(total(cost.mtp)) + head
        predictors = self.mtp_dense * dense + self.mtp_moe * moe + per_stage(self.f.model.mtp_layers) * mtp
        seconds = (
            stages.dense_layers * dense
            + stages.moe_layers * moe
            + stages.has_embedding * embedding
            + stages.has_head * (head + predictors)
        )
        if again is not None and stages.recomputed_dense is not None and stages.recomputed_moe is not None:
            dense_more, moe_more = self._more(cost, again)
            seconds = seconds + stages.recomputed_dense * dense_more + stages.recomputed_moe * moe_more
            # Layers of multi-token prediction follow the policy.
            more = self.mtp_dense * dense_more + self.mtp_moe * moe_more
            seconds = seconds + stages.has_head * per_stage(num(self.all_again)) * more
        return stages.work_share * seconds

    def _more(self, cost: PassCost, again: PassCost) -> tuple[Num, Num]:
        """What a (dense, MoE) layer takes more that runs forward again."""
        dense, moe = total(again.dense) - total(cost.dense), total(again.moe) - total(cost.moe)
        return per_stage(dense), per_stage(moe)

    def _model(self, cost: PassCost, again: PassCost | None = None) -> Num:
        """Seconds of one micro-batch on all stages together, without the layers of stages that run again."""
        f = self.f
        ends = model_ends_s(f, cost)
        if again is not None:
            ends = np.where(self.all_again, model_ends_s(f, again), ends)
        return model_body_s(f, cost) + ends

    def breakdown(self) -> dict[str, Num]:
        """Seconds by part on the critical device; what it waits is the bubble and the remainder by definition."""
        row = np.arange(len(self.table))

        def at_critical(values: Num) -> Num:
            return np.broadcast_to(values, self.work.shape)[row, self.critical]

        parts: dict[str, Num] = {}
        for cost, again in ((self.forward, None), (self.backward, self.again)):
            names = dict.fromkeys([*cost.dense, *cost.moe, *cost.embedding, *cost.head, *cost.mtp])
            for name in names:
                part = None if again is None else _part(again, name)
                seconds = self.m * at_critical(self._stage(_part(cost, name), part))
                parts[name] = parts.get(name, np.zeros(())) + seconds
        parts["pp_comm"] = self.m * self.boundary
        parts["dp_comm"] = parts.get("dp_comm", np.zeros(())) + at_critical(self.reduction)
        parts["optimizer"] = at_critical(self.optimizer)
        if OFFLOADED in parts:
            parts[OFFLOADED] = parts[OFFLOADED] + at_critical(self.host_waits)
        if QUANTISATION in parts:
            parts[QUANTISATION] = parts[QUANTISATION] + at_critical(self.quantised_weights)
        parts["host"] = parts.get("host", np.zeros(())) + self.m * self.host + self.f.cal.fixed_step_s
        parts = {name: seconds * self.f.cal.time_level for name, seconds in parts.items()}
        waited = self.step_time_s - total(parts)
        # What rounding leaves of nothing is nothing.
        parts["bubble"] = np.where(np.abs(waited) < _ROUNDING * self.step_time_s, 0.0, waited)
        return parts


def _part(cost: PassCost, name: str) -> PassCost:
    """The same pass with one of its parts alone."""
    kinds: dict[str, Parts] = {}
    for field in fields(cost):
        parts: Parts = getattr(cost, field.name)
        kinds[field.name] = {name: parts[name]} if name in parts else {}
    return PassCost(**kinds)
