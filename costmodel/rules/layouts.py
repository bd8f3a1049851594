"""Rules on the layers of each chunk: one verdict per distinct (pp, vpp, layout), gathered over the columns."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import TypeAlias

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules.rule import PlanColumns, Row
from costmodel.scenario import Scenario
from costmodel.stages import Layout, layers_per_chunk

Chunks: TypeAlias = tuple[tuple[int, ...], ...]

LAYOUT_AXES: tuple[str, ...] = ("pp", "vpp", "layout")


def per_layout(scenario: Scenario, columns: PlanColumns, verdict: Callable[[Chunks | None], bool]) -> Bools:
    """``verdict`` on the chunks of every plan. Pipelines longer than the model pass: another rule refuses them.

    The verdict gets None when the layout asks for a negative number of layers.
    """
    pp, vpp, layout = np.broadcast_arrays(columns["pp"], columns["vpp"], columns["layout"])
    if pp.size == 0:
        return np.ones(pp.shape, dtype=np.bool_)
    key = ((pp * (int(vpp.max()) + 1) + vpp) * len(Layout) + layout).reshape(-1)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    verdicts = np.ones(len(first), dtype=np.bool_)
    for position, index in enumerate(first):
        stages = int(pp.flat[index])
        if stages <= scenario.model.num_layers:
            shape = Layout(int(layout.flat[index]))
            verdicts[position] = verdict(
                layers_per_chunk(scenario.model.num_layers, stages, int(vpp.flat[index]), shape)
            )
    return np.asarray(verdicts[inverse].reshape(pp.shape))


def chunks_of(scenario: Scenario, row: Row) -> Chunks | None:
    """The chunks of one plan."""
    return layers_per_chunk(scenario.model.num_layers, row["pp"], row["vpp"], Layout(row["layout"]))


def visited(chunks: Chunks) -> tuple[int, ...]:
    """Layers of each virtual stage in the order in which a micro-batch meets them."""
    return tuple(device[turn] for turn in range(len(chunks[0])) for device in chunks)


def shown(counts: tuple[int, ...]) -> str:
    """``(7, 8, 8, 8, 7)`` as ``7,8x3,7``."""
    runs = [(count, len(list(run))) for count, run in groupby(counts)]
    return ",".join(str(count) if length == 1 else f"{count}x{length}" for count, length in runs)
