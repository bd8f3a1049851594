"""What each piece of a pipeline takes, from the parts that the cost model has for stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.facts import Facts
from costmodel.plan_rows import chunks_of_plan, encode, recomputes_some, stages_of_plan
from costmodel.predict import stage_parts
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.plan import Plan
from costmodel.stages import Layout, recomputed_of_chunks, stages_of_chunks, way_of
from costmodel.table import PlanTable, StageTable, layer_counts


@dataclass(frozen=True, kw_only=True)
class Durations:
    """Seconds of the pieces of one step.

    Attributes:
        forward_s, backward_s, weights_s: of one micro-batch, by virtual stage; the last is part of the second.
        transfer_s: an activation or a gradient on its way to another device.
        transfer_exposed_s: of that what its sender can't compute under.
        exchange_s: gradients and parameters at the end of the step, where exposed, by device.
        update_s: the optimizer and what follows it, by device.
        fixed_s: once a step, before anything else.
    """

    forward_s: Sequence[float]
    backward_s: Sequence[float]
    weights_s: Sequence[float]
    transfer_s: float
    transfer_exposed_s: float
    exchange_s: Sequence[float]
    update_s: Sequence[float]
    fixed_s: float


def durations_of(f: Facts, scenario: Scenario, plan: Plan) -> Durations:
    """The durations of a plan with whatever layers, and layers that run again, each of its chunks has."""
    table = PlanTable.of_rows([encode(scenario, plan, Layout.EVEN)])
    by_chunk = stage_parts(f, table, _chunks_as_stages(scenario, plan))
    by_device = stage_parts(f, table, stages_of_plan(scenario, plan))
    host = float(by_chunk.host_s[0])
    return Durations(
        forward_s=(by_chunk.forward_s[0] + host).tolist(),
        backward_s=(by_chunk.backward_s[0] + host).tolist(),
        weights_s=by_chunk.weights_s[0].tolist(),
        transfer_s=float(by_chunk.transfer_s[0]),
        transfer_exposed_s=float(by_chunk.transfer_exposed_s[0]),
        exchange_s=by_device.exchange_s[0].tolist(),
        update_s=by_device.update_s[0].tolist(),
        fixed_s=float(by_device.fixed_s[0]),
    )


def _chunks_as_stages(scenario: Scenario, plan: Plan) -> StageTable:
    """Every virtual stage as if it were a device of its own, in the order in which a micro-batch meets them."""
    chunks, placement = chunks_of_plan(plan), placement_of(plan.schedule)
    way = way_of(placement, len(chunks), len(chunks[0]))
    again = None
    if recomputes_some(plan):
        of_device = [recomputed_of_chunks(*of) for of in zip(chunks, plan.recomputed_layers_per_stage, strict=True)]
        again = [of_device[device][chunk] for device, chunk in way]
    _, dense_layers = layer_counts(scenario)
    alone = [(chunks[device][chunk],) for device, chunk in way]
    return StageTable.of([stages_of_chunks(alone, dense_layers, recomputed=again)])
