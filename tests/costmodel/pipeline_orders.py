"""What devices do in turn under each pipeline schedule, and a replay of it that waits for what each piece needs.

Orders are generated from the rules of those who published or run them; the closed forms are compared with the replay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

Piece: TypeAlias = tuple[str, int, object]
"""(F forward, B gradients of inputs, W gradients of weights, A both of these; stage; micro-batch)."""
Order: TypeAlias = list[tuple[Piece, ...]]
"""What one device does in turn; pieces of one entry run side by side and take the sum of their seconds."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Seconds of the whole step, those that each device works, and the most stage activations that each keeps."""

    seconds: float
    work: list[float]
    alive: list[int]


def replay(orders: Sequence[Order], stages: int, *, forward: float, inputs: float, weights: float) -> Replay:
    """Run the orders; the seconds are those of one micro-batch on one stage."""
    takes = {"F": forward, "B": inputs, "W": weights, "A": inputs + weights}
    finished: dict[Piece, float] = {}
    clock, position = [0.0] * len(orders), [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for device, order in enumerate(orders):
            while position[device] < len(order):
                entry = order[position[device]]
                needs = [need for piece in entry for need in _needs(piece, stages)]
                if not all(need in finished for need in needs):
                    break
                start = max([clock[device], *(finished[need] for need in needs)])
                clock[device] = start + sum(takes[kind] for kind, _, _ in entry)
                for kind, stage, batch in entry:
                    finished["B" if kind == "A" else kind, stage, batch] = clock[device]
                position[device] += 1
                moved = True
    assert all(at == len(order) for at, order in zip(position, orders, strict=True)), "the order can't be executed"
    kept = {"F": 1, "B": 0, "W": -1, "A": -1}
    alive = [int(np.cumsum([kept[kind] for entry in order for kind, _, _ in entry]).max()) for order in orders]
    work = [sum(takes[kind] for entry in order for kind, _, _ in entry) for order in orders]
    return Replay(seconds=max(clock), work=work, alive=alive)


def _needs(piece: Piece, stages: int) -> list[Piece]:
    kind, stage, batch = piece
    if kind == "F":
        return [("F", stage - 1, batch)] if stage else []
    if kind == "W":
        return [("B", stage, batch)]
    return [("F", stage, batch)] + ([("B", stage + 1, batch)] if stage < stages - 1 else [])


def one_forward_one_backward(pp: int, vpp: int, m: int) -> list[Order]:
    """Warm-up forwards, one forward and one backward at a time, backwards to the end.

    Megatron-Core, pipeline_parallel/schedules.py: the warm-up is ``p - s - 1`` micro-batches, interleaved
    ``2 (p - s - 1) + (v - 1) p`` chunks, in groups of p micro-batches a chunk.
    """
    orders: list[Order] = []
    for device in range(pp):
        turns = [(k // pp % vpp, k // (pp * vpp) * pp + k % pp) for k in range(m * vpp)]
        if vpp == 1:
            turns = [(0, k) for k in range(m)]
        ahead: Order = [(("F", chunk * pp + device, batch),) for chunk, batch in turns]
        back: Order = [(("A", (vpp - 1 - chunk) * pp + device, batch),) for chunk, batch in turns]
        warm_up = pp - device - 1 if vpp == 1 else 2 * (pp - device - 1) + (vpp - 1) * pp
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

    def __init__(self, stages: tuple[int, int], name: Callable[[int, int], object], most: int) -> None:
        self.order: Order = []
        self._stages, self._name, self._most = stages, name, most
        self._next: dict[tuple[str, int], int] = {}
        self._put_off: deque[Piece] = deque()

    def count(self, kind: str, which: int) -> int:
        return self._next.get((kind, which), 0)

    def _take(self, kind: str, which: int) -> tuple[Piece, ...]:
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

        def name(phase: int, index: int, second: int = second) -> object:
            return phase ^ second, index

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
