"""Rules on the layers of each chunk: one verdict per distinct (pp, vpp, layout, placement), gathered over columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from costmodel.arrays import Bools, distinct
from costmodel.rules.rule import PlanColumns, Row
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of, placements
from costmodel.spec.plan import SCHEDULES
from costmodel.stages import Layout, Placement, layers_per_chunk

Chunks: TypeAlias = tuple[tuple[int, ...], ...]

LAYOUT_AXES: tuple[str, ...] = ("pp", "vpp", "layout", "schedule")


def per_layout(scenario: Scenario, columns: PlanColumns, verdict: Callable[[Chunks | None], bool]) -> Bools:
    """``verdict`` on the chunks of every plan. Pipelines or chunks beyond the layers pass: other rules refuse them.

    The verdict gets None when the layout asks for a negative number of layers.
    """
    placement = placements(columns["schedule"])
    pp, vpp, layout, placement = np.broadcast_arrays(columns["pp"], columns["vpp"], columns["layout"], placement)
    if pp.size == 0:
        return np.ones(pp.shape, dtype=np.bool_)
    first, inverse = distinct([column.reshape(-1) for column in (pp, vpp, layout, placement)])
    verdicts = np.ones(len(first), dtype=np.bool_)
    for position, index in enumerate(first.tolist()):
        stages = int(pp.flat[index])
        chunks = stages * int(vpp.flat[index])
        if stages <= scenario.model.num_layers and chunks <= max(scenario.model.num_layers + 2, stages):
            shape = Layout(int(layout.flat[index])), Placement(int(placement.flat[index]))
            verdicts[position] = verdict(layers_per_chunk(scenario.model.num_layers, stages, chunks // stages, *shape))
    return np.asarray(verdicts[inverse].reshape(pp.shape))


def chunks_of(scenario: Scenario, row: Row) -> Chunks | None:
    """The chunks of one plan."""
    placement = placement_of(SCHEDULES[row["schedule"]])
    return layers_per_chunk(scenario.model.num_layers, row["pp"], row["vpp"], Layout(row["layout"]), placement)


def visited(chunks: Chunks) -> tuple[int, ...]:
    """Layers of each virtual stage in the order in which a micro-batch meets them."""
    return tuple(device[turn] for turn in range(len(chunks[0])) for device in chunks)
