"""What devices of a pipeline do in turn under each schedule, by the rules of those who publish or run it.

Stages here are virtual stages: chunk c of device d is stage ``c pp + d`` in a loop and ``c pp + pp - 1 - d`` on the way
back of a V. Both ways (DualPipe) a device has stage d of the first half of the micro-batches and ``pp - 1 - d`` of the
second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias

from costmodel.spec.plan import Schedule

Kind: TypeAlias = Literal["F", "B", "W", "A"]
"""F forward, B gradients of inputs, W gradients of weights, A both of these."""
Piece: TypeAlias = tuple[Kind, int, int]
"""(kind, stage, micro-batch)."""
Order: TypeAlias = list[tuple[Piece, ...]]
"""What one device does in turn; pieces of one entry run side by side and take the sum of their seconds."""


def orders_of(schedule: Schedule, pp: int, vpp: int, num_microbatches: int) -> list[Order]:
    """What each of ``pp`` devices with ``vpp`` chunks does in one step, by device.

    With fewer micro-batches than a split schedule is published for, an order may be one that can't be executed.
    """
    if schedule == "gpipe":
        return all_forward_all_backward(pp, num_microbatches)
    if schedule == "zb_h1":
        return zero_bubble_h1(pp, num_microbatches)
    if schedule == "zb_v":
        return zero_bubble_v(pp, num_microbatches)
    if schedule == "dualpipe":
        return dual_pipe(pp, num_microbatches)
    if schedule == "dualpipe_v":
        return dual_pipe_v(pp, num_microbatches)
    return one_forward_one_backward(pp, vpp, num_microbatches)


def one_forward_one_backward(pp: int, vpp: int, m: int) -> list[Order]:
    """Warm-up forwards, one forward and one backward at a time, backwards to the end.

    Megatron-Core, pipeline_parallel/schedules.py: the warm-up is ``p - s - 1`` micro-batches, interleaved
    ``2 (p - s - 1) + (v - 1) p`` chunks, in groups of p micro-batches a chunk. Where p does not divide m, torch has as
    many equal groups of more (distributed/pipelining/schedules.py of 2.13, ScheduleInterleaved1F1B).
    """
    group_size = m // max(m // pp, 1)
    orders: list[Order] = []
    for device in range(pp):
        turns = [
            (chunk, batch)
            for group in range(0, m, group_size)
            for chunk in range(vpp)
            for batch in range(group, min(group + group_size, m))
        ]
        ahead: Order = [(("F", chunk * pp + device, batch),) for chunk, batch in turns]
        back: Order = [(("A", (vpp - 1 - chunk) * pp + device, batch),) for chunk, batch in turns]
        warm_up = pp - device - 1 if vpp == 1 else 2 * (pp - device - 1) + (vpp - 1) * group_size
        warm_up = min(warm_up, len(ahead))
        order = ahead[:warm_up]
        for forward, backward in zip(ahead[warm_up:], back, strict=False):
            order += [forward, backward]
        orders.append(order + back[len(ahead) - warm_up :])
    return orders


def all_forward_all_backward(pp: int, m: int) -> list[Order]:
    """GPipe (Huang 2018, arXiv 1811.06965, figure 2c)."""
    return [
        [*((("F", device, batch),) for batch in range(m)), *((("A", device, batch),) for batch in range(m))]
        for device in range(pp)
    ]


def zero_bubble_h1(pp: int, m: int) -> list[Order]:
    """1F1B with the backward pass split; device s puts the gradients of weights off by s micro-batches.

    Qi 2023 (arXiv 2401.10241, section 2.3, figure 2): so all devices keep as many micro-batches alive.
    """
    orders: list[Order] = []
    for device in range(pp):
        ahead = deque(range(m))
        order: Order = [(("F", device, ahead.popleft()),) for _ in range(min(pp - device, m))]
        put_off: deque[int] = deque()
        for batch in range(m):
            order.append((("B", device, batch),))
            put_off.append(batch)
            if len(put_off) > device:
                order.append((("W", device, put_off.popleft()),))
            if ahead:
                order.append((("F", device, ahead.popleft()),))
        orders.append(order + [(("W", device, batch),) for batch in put_off])
    return orders


class _TwoStages:
    """The order of a device with two stages, in whose terms the V schedules and DualPipe are published."""

    def __init__(self, stages: tuple[int, int], name: Callable[[int, int], int], most: int) -> None:
        self.order: Order = []
        self._stages, self._name, self._most = stages, name, most
        self._next: dict[tuple[Kind, int], int] = {}
        self._put_off: deque[Piece] = deque()

    def count(self, kind: Kind, which: int) -> int:
        return self._next.get((kind, which), 0)

    def _take(self, kind: Kind, which: int) -> tuple[Piece, ...]:
        index = self.count(kind, which)
        self._next[kind, which] = index + 1
        # Orders are written for a full pipeline; with fewer micro-batches what is too much falls away.
        return ((kind, self._stages[which], self._name(which, index)),) if index < self._most else ()

    def _do(self, *pieces: Piece) -> None:
        if pieces:
            self.order.append(pieces)

    def forward(self, which: int) -> None:
        self._do(*self._take("F", which))

    def backward(self, which: int, *, split: bool = False) -> None:
        ((_, stage, batch),) = self._take("B", which)
        self._do(("B" if split else "A", stage, batch))
        if split:
            self._put_off.append(("W", stage, batch))

    def inputs(self, which: int) -> None:
        self._do(*self._take("B", which))

    def weights(self, which: int) -> None:
        self._do(*self._take("W", which))

    def weights_put_off(self) -> None:
        if self._put_off:
            self._do(self._put_off.popleft())

    def together(self, forward: int, backward: int) -> None:
        ((_, stage, batch),) = self._take("B", backward)
        self._do(*self._take("F", forward), ("A", stage, batch))


def zero_bubble_v(pp: int, m: int) -> list[Order]:
    """ZB-V as torch 2.13 lays it out (distributed/pipelining/schedules.py:3257, ScheduleZBVZeroBubble)."""
    orders: list[Order] = []
    for device in range(pp):
        two = _TwoStages((device, 2 * pp - 1 - device), lambda _, index: index, m)
        for _ in range(2 * (pp - device) - 1):
            two.forward(0)
        for _ in range(device):
            two.forward(1)
            two.forward(0)
        for _ in range(pp - device):
            _forward_and_both(two, 1)
        while two.count("F", 1) < two.count("F", 0) or two.count("F", 0) < max(2 * pp - 1, m):
            if two.count("F", 0) < max(2 * pp - 1, m):
                two.forward(0)
            two.inputs(0)
            two.weights(0)
            _forward_and_both(two, 1)
        for _ in range(device):
            two.inputs(0)
            two.inputs(1)
        for _ in range(pp - device):
            two.inputs(0)
            two.weights(0)
        for which in (1, 0):
            while two.count("W", which) < two.count("B", which):
                two.weights(which)
        orders.append(two.order)
    return orders


def _forward_and_both(two: _TwoStages, which: int) -> None:
    two.forward(which)
    two.inputs(which)
    two.weights(which)


def dual_pipe(pp: int, m: int) -> list[Order]:
    """DualPipe's eight steps (deepseek-ai/DualPipe bb214e82b593 dualpipe/dualpipe.py, step)."""
    orders: list[Order] = []
    for device in range(pp):
        second = int(device >= pp // 2)

        def name(phase: int, index: int, second: int = second) -> int:
            return (phase ^ second) * (m // 2) + index

        stages = (device, pp - 1 - device)
        two = _TwoStages(stages[::-1] if second else stages, name, m)
        _dual_pipe_steps(two, pp // 2, min(device, pp - 1 - device), m // 2)
        orders.append(two.order)
    return orders


def dual_pipe_v(pp: int, m: int) -> list[Order]:
    """The same steps on the two arms of a V (the same repository, dualpipev.py; torch, ScheduleDualPipeV)."""
    orders: list[Order] = []
    for device in range(pp):
        two = _TwoStages((device, 2 * pp - 1 - device), lambda _, index: index, m)
        _dual_pipe_steps(two, pp, device, m)
        orders.append(two.order)
    return orders


def _dual_pipe_steps(two: _TwoStages, ranks: int, rank: int, m: int) -> None:
    for _ in range(2 * (ranks - rank - 1)):
        two.forward(0)
    for _ in range(rank + 1):
        two.forward(0)
        two.forward(1)
    for _ in range(ranks - rank - 1):
        two.backward(1, split=True)
        two.weights_put_off()
        two.forward(1)
    for turn in range(m - 2 * ranks + rank + 1):
        if turn == 0 and rank == ranks - 1:
            two.forward(0)
            two.backward(1)
        else:
            two.together(0, 1)
        two.together(1, 0)
    for _ in range(ranks - rank - 1):
        two.backward(1)
        two.together(1, 0)
    split, half = False, (rank + 1) // 2
    for turn in range(rank + 1):
        split |= turn == half and rank % 2 == 1
        two.backward(1, split=split)
        split |= turn == half and rank % 2 == 0
        two.backward(0, split=split)
    for _ in range(ranks - rank - 1):
        two.weights_put_off()
        two.backward(0, split=True)
    for _ in range(rank + 1):
        two.weights_put_off()
