"""Rules on the layers of each chunk: one verdict per distinct (pp, vpp, layout, placement), gathered over columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
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


def per_layout(
    scenario: Scenario, columns: PlanColumns, verdict: Callable[..., bool], given: tuple[Hashable, ...] = ()
) -> Bools:
    """``verdict`` on the chunks of every plan. Pipelines or chunks beyond the layers pass: other rules refuse them.

    Args:
        verdict: a function of chunks, or of None when the layout asks for a negative number of layers. What it said is
            kept, so it is the same object every time, and all that it goes by otherwise is ``given``.
    """
    placement = placements(columns["schedule"])
    pp, vpp, layout, placement = np.broadcast_arrays(columns["pp"], columns["vpp"], columns["layout"], placement)
    if pp.size == 0:
        return np.ones(pp.shape, dtype=np.bool_)
    first, inverse = distinct([column.reshape(-1) for column in (pp, vpp, layout, placement)])
    layers = scenario.model.num_layers
    shapes = zip(*(column.reshape(-1)[first].tolist() for column in (pp, vpp, layout, placement)), strict=True)
    verdicts = np.array([_judged(verdict, given, layers, *shape) for shape in shapes], dtype=np.bool_)
    return np.asarray(verdicts[inverse].reshape(pp.shape))


@lru_cache(maxsize=65536)
def _judged(
    verdict: Callable[..., bool],
    given: tuple[Hashable, ...],
    layers: int,
    pp: int,
    vpp: int,
    layout: int,
    placement: int,
) -> bool:
    if pp > layers or pp * vpp > max(layers + 2, pp):
        return True
    return bool(verdict(layers_per_chunk(layers, pp, vpp, Layout(layout), Placement(placement)), *given))


def chunks_of(scenario: Scenario, row: Row) -> Chunks | None:
    """The chunks of one plan."""
    placement = placement_of(SCHEDULES[row["schedule"]])
    return layers_per_chunk(scenario.model.num_layers, row["pp"], row["vpp"], Layout(row["layout"]), placement)


def visited(chunks: Chunks) -> tuple[int, ...]:
    """Layers of each virtual stage in the order in which a micro-batch meets them."""
    return tuple(device[turn] for turn in range(len(chunks[0])) for device in chunks)
