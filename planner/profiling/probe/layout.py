"""Which decoder layers each chunk of a pipeline device runs, and which ends of the model are with them."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.plan_rows import chunks_of_plan
from costmodel.schedules import placement_of
from costmodel.spec.plan import Plan
from costmodel.stages import recomputed_of_chunks, virtual_stage, way_of


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A stretch of the model.

    Attributes:
        stage: its place in a micro-batch's way, from 0.
        layers: decoder layers by their number in the model.
        recomputed: how many of them, the first, run their forward pass again.
    """

    stage: int
    layers: range
    recomputed: int
    has_embedding: bool
    has_head: bool


def chunks_of_device(plan: Plan, device: int) -> tuple[Chunk, ...]:
    """The chunks of one pipeline device, in the order in which they are visited."""
    chunks, placement = chunks_of_plan(plan), placement_of(plan.schedule)
    first, start = {}, 0
    for other, chunk in way_of(placement, plan.pp, plan.vpp):
        first[other, chunk] = start
        start += chunks[other][chunk]
    again = recomputed_of_chunks(chunks[device], plan.recomputed_layers_per_stage[device])
    last = plan.pp * plan.vpp - 1
    found = []
    for chunk, count in enumerate(chunks[device]):
        stage, begin = virtual_stage(placement, plan.pp, device, chunk), first[device, chunk]
        found.append(
            Chunk(
                stage=stage,
                layers=range(begin, begin + count),
                recomputed=again[chunk],
                has_embedding=stage == 0,
                has_head=stage == last,
            )
        )
    return tuple(found)
