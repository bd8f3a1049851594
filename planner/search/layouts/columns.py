"""Where the longer chunks of an interleaved pipeline go, so that devices wait for each other as little as can be.

What a device holds is settled before. In one slot devices run the same chunk, or the one beside it: devices whose
longer chunks have the same numbers wait least (``costmodel.interleaving``). So chunks get a layer more in one order on
all devices. Which is best follows from the ends of the model and from how many are longer: a few orders are tried, with
the chunks of the ends left even or without layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from costmodel.arrays import Num
from costmodel.facts import Facts
from costmodel.plan_costs import PlanCosts
from costmodel.plan_rows import Chunks
from costmodel.scenario import Scenario
from costmodel.spec.model import DenseLayers
from costmodel.stages import recomputed_of_chunks, stages_of_chunks
from costmodel.table import PlanTable, virtual_stages
from planner.search.layouts.arrange import Arrangement


def least_waiting(
    scenario: Scenario, f: Facts, table: PlanTable, layouts: Sequence[Arrangement], step_s: Num
) -> tuple[list[Arrangement], Num]:
    """The same layers on every device in those of the chunks that wait least, and seconds of a step.

    Args:
        table: interleaved plans.
        step_s: what steps take if no chunk waits for another.
    """
    tried = [ways_of(layout, scenario.model.dense_layers) for layout in layouts]
    row = np.repeat(np.arange(len(tried)), [len(ways) for ways in tried])
    ways = [way for of in tried for way in of]
    again = [
        [recomputed_of_chunks(*device) for device in zip(way, layouts[of].recomputed, strict=True)]
        for way, of in zip(ways, row.tolist(), strict=True)
    ]
    chunks = virtual_stages(ways, [scenario.model.dense_layers] * len(ways), again)
    waits = PlanCosts.of(f, table.take(row)).unlike_chunks_s(chunks)
    starts = np.cumsum([0, *(len(of) for of in tried)])
    best = [int(waits[start:end].argmin()) + start for start, end in pairwise(starts.tolist())]
    found = [
        Arrangement(chunks=ways[place], recomputed=layout.recomputed)
        for place, layout in zip(best, layouts, strict=True)
    ]
    return found, step_s + waits[best]


@lru_cache(maxsize=4096)
def ways_of(layout: Arrangement, dense_layers: DenseLayers) -> tuple[Chunks, ...]:
    """Ways to lay the same layers over chunks, the given one first: only waiting tells them apart."""
    own = layout.chunks
    found = dict.fromkeys([own])
    for order in _orders(len(own[0])):
        for last in (None, 0, 1):
            chunks = _laid(own, order, last)
            if chunks is not None and chunks not in found and _holds_the_same(chunks, layout, dense_layers):
                found[chunks] = None
    return tuple(found)


def _holds_the_same(chunks: Chunks, layout: Arrangement, dense_layers: DenseLayers) -> bool:
    """Whether devices keep their layers of each kind, and as many run again with a number that each chunk is told."""
    layers, again = tuple(map(sum, layout.chunks)), layout.recomputed
    some = again not in (layers, (0,) * len(layers))
    if some and not all(
        any(sum(min(told, count) for count in own) == number for told in range(max(own) + 1))
        for own, number in zip(chunks, again, strict=True)
    ):
        return False
    if dense_layers in (0, sum(layers)):
        return True
    return stages_of_chunks(chunks, dense_layers, recomputed=again) == stages_of_chunks(
        layout.chunks, dense_layers, recomputed=again
    )


def _orders(vpp: int) -> tuple[tuple[int, ...], ...]:
    """In which chunks get a layer more than others."""
    front = tuple(range(vpp))
    return front, front[::-1], (*front[1:], 0), (0, vpp - 1, *front[1:-1])


def _laid(own: Chunks, order: Sequence[int], last: int | None) -> Chunks | None:
    """Every device's layers as even as can be, those over in this order; None where a chunk would lack a layer.

    Args:
        last: layers of the chunk with the head, where that is not as even as the others.
    """
    found = []
    for device, counts in enumerate(own):
        given: dict[int, int] = {}
        if device == len(own) - 1 and last is not None:
            given[len(counts) - 1] = last
        elif device in (0, len(own) - 1) and sum(counts) < len(counts):
            given[0 if device == 0 else len(counts) - 1] = 0
        open_ = [chunk for chunk in order if chunk not in given]
        each, over = divmod(sum(counts) - sum(given.values()), len(open_))
        if each < 1:
            return None
        given |= {chunk: each + (place < over) for place, chunk in enumerate(open_)}
        found.append(tuple(given[chunk] for chunk in range(len(counts))))
    return tuple(found)
