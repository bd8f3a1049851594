"""Ways to share out layers over devices, as holdings: what a device has when it takes so many from where it starts.

With one chunk a device, devices take layers one after the other, so the kinds of layers that it gets follow from where
it starts. With several chunks and layers of one kind only the number counts. Where the first layers are dense, they lie
at the front of the first chunks: each way to share them out is a ``Splits`` of its own.
A device's chunks are as even as possible, the lighter ones at the ends of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from costmodel.arrays import Ints
from costmodel.spec.model import DenseLayers
from costmodel.stages import Placement

Chunks = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Devices and the layers that they share.

    Of several chunks a device those with the embedding and the loss may be without layers.
    """

    layers: int
    dense: DenseLayers
    pp: int
    vpp: int
    placement: Placement

    @property
    def last(self) -> int:
        """The device with the head."""
        return 0 if self.placement == Placement.V else self.pp - 1

    @property
    def is_mixed(self) -> bool:
        """Whether there are layers of both kinds."""
        return self.dense not in (0, self.layers)

    def least_of(self, device: int) -> int:
        """The fewest layers of a device."""
        ends = ((device == 0) + (device == self.last)) * (self.vpp > 1)
        return max(self.vpp - ends, 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Splits:
    """The choices of every device, between ``fewest`` and ``fewest + width - 1`` layers.

    Attributes:
        start_kind: ``(layers + 1,)``; where a device may start, by what follows from there.
        holding_at: ``(devices, start kinds, width)``; place of what the device then has, -1 where it can't.
        device, dense_layers, moe_layers: ``(holdings,)``.
        dense_again, moe_again: ``(holdings, counts)``; layers that run again where the framework is told to run so many
            of each chunk again, from 0 on.
        chunks: layers of the chunks of each holding.
    """

    pipeline: Pipeline
    fewest: int
    start_kind: Ints
    holding_at: Ints
    device: Ints
    dense_layers: Ints
    moe_layers: Ints
    dense_again: Ints
    moe_again: Ints
    chunks: tuple[Chunks, ...]

    @property
    def width(self) -> int:
        """Numbers of layers that a device may have."""
        return int(self.holding_at.shape[2])

    @property
    def counts(self) -> int:
        """Numbers that the framework can be told to run again of each chunk, 0 among them."""
        return int(self.dense_again.shape[1])

    @cached_property
    def all_again(self) -> Ints:
        """The number for each holding at which all its layers run again."""
        return np.asarray([max(chunks) for chunks in self.chunks], dtype=np.int64)


@lru_cache(maxsize=4096)
def splits_of(pipeline: Pipeline, most: int) -> tuple[Splits, ...]:
    """All ways in which no device has more than ``most`` layers; empty where the layers are too many for that."""
    p, pp, layers = pipeline, pipeline.pp, pipeline.layers
    least = [p.least_of(device) for device in range(pp)]
    most = min(most, layers - sum(least) + max(least))
    if most * pp < layers or sum(least) > layers:
        return ()
    found = (_Builder(p, least, most, way).build() for way in _ways(p))
    return tuple(splits for splits in found if splits is not None)


def _ways(p: Pipeline) -> Iterator[Chunks | None]:
    """How leading dense layers fall into the first chunks of the first devices; None where that is no choice."""
    if p.vpp == 1 or not p.is_mixed:
        yield None
        return
    assert isinstance(p.dense, int), "listed dense layers with virtual stages follow recipes"

    def compositions(left: int, devices: int) -> Iterator[Chunks]:
        yield (left,)
        for first in range(1, left) if devices > 1 else ():
            for others in compositions(left - first, devices - 1):
                yield (first, *others)

    yield from compositions(p.dense, p.pp)
    if p.pp > 1:
        for others in compositions(p.dense, p.pp - 1):
            yield (0, *others)


class _Builder:
    """Collects the distinct holdings."""

    def __init__(self, pipeline: Pipeline, least: list[int], most: int, way: Chunks | None) -> None:
        self.p, self.least, self.most, self.way = pipeline, least, most, way
        layers = range(pipeline.layers)
        dense = set(range(pipeline.dense)) if isinstance(pipeline.dense, int) else set(pipeline.dense)
        self.kinds = tuple(layer in dense for layer in layers)
        self.found: dict[tuple[int, Chunks, tuple[bool, ...]], int] = {}

    def build(self) -> Splits | None:
        p = self.p
        follows = p.is_mixed and p.vpp == 1
        kinds = self.kinds
        # Starts are alike where the same kinds of layers follow.
        starts: dict[tuple[bool, ...], int] = {}
        start_kind = np.array(
            [
                starts.setdefault(kinds[at : at + self.most] if follows else (), len(starts))
                for at in range(p.layers + 1)
            ],
            dtype=np.int64,
        )
        fewest = min(self.least)
        holding_at = np.full((p.pp, len(starts), self.most - fewest + 1), -1, dtype=np.int64)
        for device in range(p.pp):
            before, after = sum(self.least[:device]), sum(self.least[device + 1 :])
            for start in self._starts(device) if follows else (0,):
                room = p.layers - after - (start if follows else before)
                for count in range(self.least[device], min(self.most, room) + 1):
                    place = self._holding(device, start, count)
                    holding_at[device, start_kind[start], count - fewest] = place
        if not self.found:
            return None
        holdings = list(self.found)
        again = [_again(chunks, of) for _, chunks, of in holdings]
        width = max(len(rows) for rows in again)
        by_count = np.array([rows + rows[-1:] * (width - len(rows)) for rows in again], dtype=np.int64)
        dense = np.array([sum(of) for _, _, of in holdings], dtype=np.int64)
        return Splits(
            pipeline=p,
            fewest=fewest,
            start_kind=start_kind,
            holding_at=holding_at,
            device=np.array([device for device, _, _ in holdings], dtype=np.int64),
            dense_layers=dense,
            moe_layers=np.array([len(of) for _, _, of in holdings], dtype=np.int64) - dense,
            dense_again=by_count[:, :, 0],
            moe_again=by_count[:, :, 1],
            chunks=tuple(chunks for _, chunks, _ in holdings),
        )

    def _starts(self, device: int) -> range:
        """Where the device can start."""
        p, before, after = self.p, self.least[:device], self.least[device:]
        first = max(sum(before), p.layers - len(after) * self.most)
        return range(first, min(len(before) * self.most, p.layers - sum(after)) + 1)

    def _holding(self, device: int, start: int, count: int) -> int:
        """The place of a holding; -1 where the way of the dense layers leaves none."""
        if self.way is None:
            chunks, kinds = chunks_of(self.p, device, count), self.kinds[start : start + count]
            if not self.p.is_mixed:
                kinds = self.kinds[:count]
        else:
            dense = self.way[device] if device < len(self.way) else 0
            first = chunks_of(self.p, device, count)
            if device < len(self.way) - 1 or (device == len(self.way) - 1 and first[0] < dense):
                chunks = (dense, *_even(count - dense, self.p.vpp - 1))
            else:
                chunks = first
            if not self._may_be(device, chunks):
                return -1
            kinds = (True,) * dense + (False,) * (count - dense)
        return self.found.setdefault((device, chunks, kinds), len(self.found))

    def _may_be(self, device: int, chunks: Chunks) -> bool:
        """Whether no chunk is empty that has to have a layer."""
        p = self.p
        empty = {turn for turn, count in enumerate(chunks) if count <= 0}
        allowed = ({0} if device == 0 else set()) | ({p.vpp - 1} if device == p.last else set())
        return min(chunks) >= 0 and empty <= allowed


def chunks_of(p: Pipeline, device: int, count: int) -> Chunks:
    """A device's layers over its chunks, the lighter ones where the ends of the model are."""
    even = _even(count, p.vpp)
    return tuple(reversed(even)) if device == 0 and p.placement != Placement.V and p.pp > 1 else even


def _even(count: int, chunks: int) -> Chunks:
    each, rest = divmod(count, chunks)
    return (each + 1,) * rest + (each,) * (chunks - rest)


@lru_cache(maxsize=65536)
def _again(chunks: Chunks, kinds: tuple[bool, ...]) -> tuple[tuple[int, int], ...]:
    """(dense, MoE) layers that run again where so many of each chunk do, from 0 up to all.

    With several chunks dense layers are either all there is or at the front of the first.
    """
    found: list[tuple[int, int]] = []
    dense_first = kinds if len(chunks) == 1 or all(kinds) else kinds[: chunks[0]]
    for told in range(max(chunks) + 1):
        total = sum(min(told, count) for count in chunks)
        dense = total if len(chunks) > 1 and all(kinds) else sum(dense_first[:told])
        found.append((dense, total - dense))
    return tuple(found)
