"""Seconds of stages from the costs of layers and ends: the parts of the closed form that ``costmodel.predict`` has."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from costmodel.arrays import Ints, Num, num, per_stage
from costmodel.end_of_step import exposed_exchanges_s, optimizer_s
from costmodel.interleaving import unlike_chunks_s
from costmodel.layers import (
    OFFLOADED,
    QUANTISATION,
    Parts,
    PassCost,
    hiding_cost,
    model_body_s,
    model_ends_s,
    total,
    weights_cost,
)
from costmodel.offload import host_step_s
from costmodel.once_a_step import kept_weights_s
from costmodel.saved import mtp_layers_of_kind
from costmodel.schedules import may_wait, waiting_s
from costmodel.sharded_layers import hiding_gathers
from costmodel.table import StageTable
from costmodel.terms.activations import RECOMPUTE_FULL, RECOMPUTE_NONE

if TYPE_CHECKING:
    from costmodel.plan_costs import PlanCosts

_ROUNDING = 1e-12


class StageWork:
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
        ahead, back = self.stage(self.forward), self.stage(self.backward, self.again)
        self.work = ahead + back + per_stage(self.boundary + self.host)
        self.unlike_chunks = self._unlike_chunks_s()
        self.waiting = self.waiting_with(self._stages_again_s()) + self.unlike_chunks
        under, under_back = hiding_cost(self.forward, o, backward=False), hiding_cost(self.backward, o, backward=True)
        under_again = None if self.again is None else hiding_cost(self.again, o, backward=True)
        ahead, back = self.stage(under), self.stage(under_back, under_again)
        if (sharding.gathers_ahead & ~sharding.reduces_each).any():
            hiding_ahead, hiding_back = hiding_gathers(f, o, self.forward, self.backward, sharding)
            ahead, back = ahead - self.stage(hiding_ahead), back - self.stage(hiding_back)
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
            ahead, back = self.stage(self.forward, of=chunks), self.stage(self.backward, self.again, of=chunks)
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

    def stage(self, cost: PassCost, again: PassCost | None = None, of: StageTable | None = None) -> Num:
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
                seconds = self.m * at_critical(self.stage(_part(cost, name), part))
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
