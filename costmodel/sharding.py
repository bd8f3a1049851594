"""What a plan's data parallelism gathers, reduces and keeps, and when: its ZeRO stage with the options beside it.

Stages 0 and 1 reduce gradients once a step, stage 1 and 2 gather parameters once a step, stage 3 gathers every layer
twice a micro-batch (Rajbhandari 2019, arXiv 1910.02054, section 5). The options move that: ``gradient_sync`` when
gradients are reduced, ``reshard_after`` how long gathered parameters are kept (PyTorch FSDP), ``zero_plus`` what goes
over the wire instead (Wang 2023, arXiv 2306.10209).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Bools, Num, num
from costmodel.facts import Facts
from costmodel.spec.options import GRADIENT_SYNCS, RESHARD_AFTER
from costmodel.table import PlanTable
from costmodel.terms import zero_plus

AFTER_FORWARD, AFTER_BACKWARD, AFTER_STEP = range(len(RESHARD_AFTER))
EVERY_MICRO_BATCH = GRADIENT_SYNCS.index("microbatch")


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """Columns of a block of plans.

    Attributes:
        zero_stage: as the plan has it.
        ranks: that dense gradients are reduced over.
        cuts_parameters: whether a rank keeps its share of the parameters alone.
        gathers_ahead, gathers_again: whether a micro-batch gathers each layer for its forward pass, and once more for
            its backward pass.
        gathers_once: whether all parameters are gathered once a step.
        deals_tensors: whether whole tensors were dealt to ranks, which broadcast them instead.
        reduces_each: whether gradients are reduced after every micro-batch, not once a step.
        cuts_gradients: whether a rank keeps its share of the gradients alone: what is reduced once a step is
            accumulated whole.
        keeps_whole: whether gathered parameters stay from a forward to a backward pass or longer, so that a stage
            holds all of its own.
        prefetch: layers that are gathered ahead of the one at work.
        second_copy: whether each node keeps a copy for the backward pass (hpZ).
        parameter_bytes, gradient_bytes: of one parameter on the wire.
        quantised_gathers, quantised_reduction: whether these are quantised for the wire (qwZ, qgZ).
    """

    zero_stage: Num
    ranks: Num
    cuts_parameters: Bools
    gathers_ahead: Bools
    gathers_again: Bools
    gathers_once: Bools
    deals_tensors: Bools
    reduces_each: Bools
    cuts_gradients: Bools
    keeps_whole: Bools
    prefetch: Num
    second_copy: Bools
    parameter_bytes: Num
    gradient_bytes: Num
    quantised_gathers: Bools
    quantised_reduction: Bools

    @classmethod
    def of(cls, f: Facts, table: PlanTable) -> Sharding:
        """What each plan of a table does."""
        zero, after = num(table["zero_stage"]), table["reshard_after"]
        kept = (zero == 2) & (f.work.stage_2_gathers > 0)
        sharded, each = kept | (zero >= 3), table["gradient_sync"] == EVERY_MICRO_BATCH
        after = np.where(kept, np.maximum(after, AFTER_BACKWARD), after)
        in_use = {part: sharded & zero_plus.has(num(table["zero_plus"]), part) for part in zero_plus.PARTS}
        parameter_bytes = f.cal.parameter_wire_bytes * f.work.parameter_wire
        gradient_bytes = f.cal.gradient_wire_bytes * f.work.gradient_wire
        return cls(
            zero_stage=zero,
            ranks=num(table["dp"] * table["cp"]),
            cuts_parameters=sharded,
            gathers_ahead=sharded & (after != AFTER_STEP),
            gathers_again=sharded & (after == AFTER_FORWARD),
            gathers_once=np.where(sharded, after == AFTER_STEP, zero >= 1),
            deals_tensors=(zero == 1) & (f.work.stage_1_deals_tensors > 0),
            reduces_each=each,
            cuts_gradients=(zero >= 2) & each,
            keeps_whole=sharded & (after != AFTER_FORWARD),
            prefetch=num(table["fsdp_prefetch"]),
            second_copy=in_use["hpz"],
            parameter_bytes=np.where(in_use["qwz"], zero_plus.WEIGHT_BYTES, parameter_bytes),
            gradient_bytes=np.where(in_use["qgz"], zero_plus.GRADIENT_BYTES, gradient_bytes),
            quantised_gathers=in_use["qwz"],
            quantised_reduction=in_use["qgz"],
        )

    @property
    def works_by_layer(self) -> bool:
        """Whether any plan exchanges anything for every micro-batch."""
        return bool(self.gathers_ahead.any() or self.reduces_each.any())
