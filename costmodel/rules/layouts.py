"""Rules on the layers of each chunk: one verdict per distinct (pp, vpp, layout), gathered over the columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from costmodel.arrays import Bools, distinct
from costmodel.rules.rule import PlanColumns, Row
from costmodel.scenario import Scenario
from costmodel.stages import Layout, layers_per_chunk

Chunks: TypeAlias = tuple[tuple[int, ...], ...]

LAYOUT_AXES: tuple[str, ...] = ("pp", "vpp", "layout")


def per_layout(scenario: Scenario, columns: PlanColumns, verdict: Callable[[Chunks | None], bool]) -> Bools:
    """``verdict`` on the chunks of every plan. Pipelines or chunks beyond the layers pass: other rules refuse them.

    The verdict gets None when the layout asks for a negative number of layers.
    """
    pp, vpp, layout = np.broadcast_arrays(columns["pp"], columns["vpp"], columns["layout"])
    if pp.size == 0:
        return np.ones(pp.shape, dtype=np.bool_)
    first, inverse = distinct([pp.reshape(-1), vpp.reshape(-1), layout.reshape(-1)])
    verdicts = np.ones(len(first), dtype=np.bool_)
    for position, index in enumerate(first.tolist()):
        stages = int(pp.flat[index])
        chunks = stages * int(vpp.flat[index])
        if stages <= scenario.model.num_layers and chunks <= max(scenario.model.num_layers + 2, stages):
            shape = Layout(int(layout.flat[index]))
            verdicts[position] = verdict(layers_per_chunk(scenario.model.num_layers, stages, chunks // stages, shape))
    return np.asarray(verdicts[inverse].reshape(pp.shape))


def chunks_of(scenario: Scenario, row: Row) -> Chunks | None:
    """The chunks of one plan."""
    return layers_per_chunk(scenario.model.num_layers, row["pp"], row["vpp"], Layout(row["layout"]))


def visited(chunks: Chunks) -> tuple[int, ...]:
    """Layers of each virtual stage in the order in which a micro-batch meets them."""
    return tuple(device[turn] for turn in range(len(chunks[0])) for device in chunks)
