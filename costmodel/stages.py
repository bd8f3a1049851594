"""How decoder layers are laid over pipeline devices and their chunks, and what each device then holds.

``Placement`` says which device runs which of the virtual stages that a micro-batch meets in turn.

Layouts here follow one recipe: layers as even as possible, the lighter chunks at the two ends, where embedding and
head sit. ``Layout`` says whether the embedding and the loss count as a layer of their own when the evenness is
judged, as Megatron's ``account_for_embedding_in_pipeline_split`` / ``account_for_loss_in_pipeline_split`` do, or what
multi-token prediction adds to the last stage too: its layer and its own loss. Megatron-Bridge lays DeepSeek-V3's 61
layers on 16 chunks as 4, ..., 4, 1 and on 32 as 1, 2, ..., 2, 0 (``Et*4|(t*4|)*14tmL``, ``Et|(tt|)*30mL`` in
recipes/deepseek/deepseek_v3.py): three places, from the first chunk where the last has no more.
For 126 layers on 16 devices the plain recipe gives Llama 3's published 7, 8, ..., 8, 7 (arXiv 2407.21783, section
3.3.2).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import groupby

from costmodel.spec.model import DenseLayers


class Layout(IntEnum):
    """What counts as a layer when chunks are made even."""

    EVEN = 0
    LOSS_COUNTS = 1
    EMBEDDING_AND_LOSS_COUNT = 2
    MTP_AND_LOSSES_COUNT = 3

    @property
    def places(self) -> int:
        """Layers' places that the ends of the model take."""
        return {Layout.EVEN: 0, Layout.LOSS_COUNTS: 1, Layout.EMBEDDING_AND_LOSS_COUNT: 2}.get(self, 3)


class Placement(IntEnum):
    """Which of the pp * vpp virtual stages a device has.

    ``LOOP``: d, pp + d, 2 pp + d, ... (Narayanan 2021, arXiv 2104.04473, section 2.2). ``V``: d and 2 pp - 1 - d, so
    that the first device has both ends of the model (Qi 2024, arXiv 2405.15362, section 4). ``BOTH_WAYS``: every stage
    twice, d and pp - 1 - d, each for half of the micro-batches (DeepSeek-V3, arXiv 2412.19437, section 3.2.1).
    """

    LOOP = 0
    V = 1
    BOTH_WAYS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class StageKind:
    """What one pipeline device holds.

    Attributes:
        index: its position, 0 is first.
        dense_layers, moe_layers: decoder layers by kind.
        has_embedding, has_head: whether the ends of the model live here.
        work_share: the share of the micro-batches that visit each of its layers: all, or half.
        recomputed_dense, recomputed_moe: layers whose forward pass runs again; None where the plan's policy says it.
    """

    index: int
    dense_layers: int
    moe_layers: int
    has_embedding: bool
    has_head: bool
    work_share: float = 1.0
    recomputed_dense: int | None = None
    recomputed_moe: int | None = None


@lru_cache(maxsize=65536)
def layers_per_chunk(
    num_layers: int, pp: int, vpp: int, layout: Layout, placement: Placement = Placement.LOOP
) -> tuple[tuple[int, ...], ...] | None:
    """Layers of every chunk, ``result[device][chunk]``.

    None when the layout asks for a negative count, or leaves nothing to do at the turn of a V.

    Chunk ``c`` of device ``d`` is virtual stage ``virtual_stage(placement, pp, d, c)``. Both ways, a device has one
    chunk here: that of the direction in which it is stage ``d``.
    """
    chunks = pp * vpp
    base, extra = divmod(num_layers + layout.places, chunks)
    counts = [[base + 1] * vpp for _ in range(pp)]
    for device, chunk in _lighter_first(pp, vpp, placement)[: chunks - extra]:
        counts[device][chunk] -= 1
    last = 0 if placement == Placement.V else pp - 1
    at_end = min(layout.places, 1)
    if layout == Layout.MTP_AND_LOSSES_COUNT:
        at_end = min(layout.places, counts[last][vpp - 1])
    counts[last][vpp - 1] -= at_end
    counts[0][0] -= layout.places - at_end
    turn = [counts[-1][0], *(row[-1] for row in counts[1:])] if placement == Placement.V and pp > 1 else [1]
    if min(min(row) for row in counts) < 0 or min(turn) < 1:
        return None
    return tuple(tuple(row) for row in counts)


@lru_cache(maxsize=65536)
def chunks_by_cost(num_layers: int, pp: int, layer_cost: int, head_cost: int) -> tuple[tuple[int, ...], ...]:
    """Layers of every device, one chunk each, where blocks go to a stage until it has more than its share of the cost.

    The block that exceeds a stage's share stays with it, so the first stages hold more layers than the head's (nanotron
    ``models/base.py`` build_model).
    """
    counts, stage = [0] * pp, 0
    total = num_layers * layer_cost + head_cost
    for layer in range(1, num_layers + 1):
        counts[stage] += 1
        if stage < pp - 1 and layer * layer_cost > total * ((stage + 1) / pp):
            stage += 1
    return tuple((count,) for count in counts)


def virtual_stage(placement: Placement, pp: int, device: int, chunk: int) -> int:
    """The place in a micro-batch's way of one chunk of one device, in the device's first direction."""
    turned = placement == Placement.V and chunk % 2 == 1
    return chunk * pp + (pp - 1 - device if turned else device)


@lru_cache(maxsize=1024)
def way_of(placement: Placement, pp: int, vpp: int) -> tuple[tuple[int, int], ...]:
    """(device, chunk) in the order in which a micro-batch meets them, in the first direction."""
    pairs = ((device, chunk) for device in range(pp) for chunk in range(vpp))
    return tuple(sorted(pairs, key=lambda pair: virtual_stage(placement, pp, *pair)))


@lru_cache(maxsize=1024)
def _lighter_first(pp: int, vpp: int, placement: Placement) -> tuple[tuple[int, int], ...]:
    """(device, chunk) in the order in which chunks give up a layer: last and first device, then those between.

    Going round device by device keeps device totals within one layer of each other. In a V the first device has both
    ends: its last chunk gives first.
    """
    if placement == Placement.V:
        order_of_devices = [0, *range(pp - 1, 0, -1)]
        return tuple((device, vpp - 1 - turn) for turn in range(vpp) for device in order_of_devices)
    devices = [pp - 1] + ([0] if pp > 1 else []) + list(range(pp - 2, 0, -1))
    order: list[tuple[int, int]] = []
    for turn in range(vpp):
        for device in devices:
            order.append((device, turn if device == 0 and pp > 1 else vpp - 1 - turn))
    return tuple(order)


@lru_cache(maxsize=65536)
def stage_kinds(
    num_layers: int,
    dense_layers: DenseLayers,
    pp: int,
    vpp: int,
    layout: Layout,
    placement: Placement = Placement.LOOP,
) -> tuple[StageKind, ...] | None:
    """Every pipeline device in order; ``dense_layers`` at the front, or those listed, are dense, the rest are MoE.

    A model without experts passes ``dense_layers = num_layers``.
    """
    chunks = layers_per_chunk(num_layers, pp, vpp, layout, placement)
    return None if chunks is None else stages_of_chunks(chunks, dense_layers, placement)


def stages_of_chunks(
    chunks: Sequence[Sequence[int]],
    dense_layers: DenseLayers,
    placement: Placement = Placement.LOOP,
    recomputed: Sequence[int] | None = None,
) -> tuple[StageKind, ...]:
    """What each device holds when ``chunks[device][chunk]`` says the layers of every chunk.

    Args:
        recomputed: how many layers of each device run their forward pass again, the first of every chunk (Megatron-Core
            ``recompute_method`` block), spread over the chunks as evenly as these allow; None where all do or none.
    """
    pp, vpp = len(chunks), len(chunks[0])
    way = way_of(placement, pp, vpp)
    again = None if recomputed is None else [recomputed_of_chunks(*of) for of in zip(chunks, recomputed, strict=True)]
    dense, total = [0] * pp, [0] * pp
    dense_again, total_again = [0] * pp, [0] * pp
    start = 0
    for device, chunk in way:
        count = chunks[device][chunk]
        dense[device] += _dense_among(dense_layers, start, count)
        total[device] += count
        if again is not None:
            dense_again[device] += _dense_among(dense_layers, start, again[device][chunk])
            total_again[device] += again[device][chunk]
        start += count
    last = way[-1][0]
    found = tuple(
        StageKind(
            index=device,
            dense_layers=dense[device],
            moe_layers=total[device] - dense[device],
            has_embedding=device == 0,
            has_head=device == last,
            recomputed_dense=None if again is None else dense_again[device],
            recomputed_moe=None if again is None else total_again[device] - dense_again[device],
        )
        for device in range(pp)
    )
    return _both_ways(found) if placement == Placement.BOTH_WAYS else found


def _both_ways(stages: Sequence[StageKind]) -> tuple[StageKind, ...]:
    """Each device with its own stage and that of its mirror image."""
    return tuple(
        StageKind(
            index=own.index,
            dense_layers=own.dense_layers + other.dense_layers,
            moe_layers=own.moe_layers + other.moe_layers,
            has_embedding=own.has_embedding or other.has_embedding,
            has_head=own.has_head or other.has_head,
            work_share=0.5,
            recomputed_dense=_sum_of(own.recomputed_dense, other.recomputed_dense),
            recomputed_moe=_sum_of(own.recomputed_moe, other.recomputed_moe),
        )
        for own, other in zip(stages, reversed(stages), strict=True)
    )


def _sum_of(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def recomputed_of_chunks(layers: Sequence[int], recomputed: int) -> list[int]:
    """Recomputed layers of each chunk of a device: as even as its chunks' layers allow, the first chunks first."""
    found, left = [0] * len(layers), recomputed
    while left > 0:
        open_ = [chunk for chunk, count in enumerate(layers) if found[chunk] < count]
        if not open_:
            break
        for chunk in open_[:left]:
            found[chunk] += 1
        left -= min(left, len(open_))
    return found


def _dense_among(dense_layers: DenseLayers, start: int, count: int) -> int:
    """Dense layers among the ``count`` layers from ``start`` on."""
    if isinstance(dense_layers, int):
        return min(max(dense_layers - start, 0), count)
    return bisect_left(dense_layers, start + count) - bisect_left(dense_layers, start)


@lru_cache(maxsize=65536)
def representative_stages(
    num_layers: int,
    dense_layers: DenseLayers,
    pp: int,
    vpp: int,
    layout: Layout,
    placement: Placement = Placement.LOOP,
) -> tuple[StageKind, ...] | None:
    """The devices that can be the slowest or the fullest: of those that hold the same, the first.

    It keeps the most micro-batches in flight, so the maxima over these are the maxima over all devices.
    """
    stages = stage_kinds(num_layers, dense_layers, pp, vpp, layout, placement)
    return None if stages is None else representatives(stages)


def representatives(stages: Iterable[StageKind]) -> tuple[StageKind, ...]:
    """The first of those stages that hold the same."""
    first: dict[tuple[int, int, bool, bool], StageKind] = {}
    for stage in stages:
        first.setdefault((stage.dense_layers, stage.moe_layers, stage.has_embedding, stage.has_head), stage)
    return tuple(first.values())


def shortened(layers: Iterable[int]) -> str:
    """``(7, 8, 8, 8, 7)`` as ``7,8x3,7``."""
    runs = [(count, len(list(run))) for count, run in groupby(layers)]
    return ",".join(str(count) if length == 1 else f"{count}x{length}" for count, length in runs)
