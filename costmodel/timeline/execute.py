"""Discrete-event execution of a pipeline's orders: a piece starts once its device is free and its inputs are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from costmodel.timeline.durations import Durations
from costmodel.timeline.orders import Order, Piece

Run: TypeAlias = tuple[int, Piece, float, float]
"""(device, piece, start, end) in seconds from the first piece on."""


@dataclass(frozen=True, kw_only=True)
class Executed:
    """What ran when, and when each device was done."""

    runs: list[Run]
    ends_s: list[float]


def execute(orders: Sequence[Order], durations: Durations, device_of: Callable[[int, int], int]) -> Executed:
    """Run the orders.

    A transfer keeps its sender for the exposed share of its seconds, and arrives after all of them.

    Args:
        device_of: the device of (stage, micro-batch).

    Raises:
        ValueError: some piece waits for what never comes.
    """
    state = _State(durations, len(durations.forward_s), device_of)
    clock, position = [0.0] * len(orders), [0] * len(orders)
    ready, waiting = list(range(len(orders))), dict[Piece, list[int]]()
    runs: list[Run] = []
    while ready:
        device = ready.pop()
        order = orders[device]
        while position[device] < len(order):
            entry = order[position[device]]
            start, missing = state.start_of(entry, clock[device])
            if missing is not None:
                waiting.setdefault(missing, []).append(device)
                break
            end, done = state.run(entry, start)
            runs += [(device, piece, start, end) for piece in entry]
            for piece in done:
                ready += waiting.pop(piece, ())
            clock[device] = end
            position[device] += 1
    if any(at < len(order) for at, order in zip(position, orders, strict=True)):
        raise ValueError("the order of the schedule can't be executed with so few micro-batches")
    return Executed(runs=runs, ends_s=clock)


class _State:
    """Which results are there, and when they reach the device that needs them."""

    def __init__(self, durations: Durations, stages: int, device_of: Callable[[int, int], int]) -> None:
        d = self.durations = durations
        self.stages, self.device_of = stages, device_of
        inputs = [whole - weights for whole, weights in zip(d.backward_s, d.weights_s, strict=True)]
        self.takes = {"F": d.forward_s, "B": inputs, "W": d.weights_s, "A": d.backward_s}
        self.behind_s = max(d.transfer_s - d.transfer_exposed_s, 0.0)
        self.finished: dict[Piece, float] = {}
        self.arrives: dict[Piece, float] = {}

    def start_of(self, entry: Sequence[Piece], free_at: float) -> tuple[float, Piece | None]:
        """When all that the entry needs is there, or what of it is missing."""
        start = free_at
        for kind, stage, batch in entry:
            if kind == "F":
                needed: Piece = ("F", stage - 1, batch)
                at = self.arrives.get(needed) if stage else 0.0
            elif kind == "W":
                needed = ("B", stage, batch)
                at = self.finished.get(needed)
            else:
                needed = ("F", stage, batch)
                at = self.finished.get(needed)
                if at is not None and stage < self.stages - 1:
                    needed = ("B", stage + 1, batch)
                    at = self.arrives.get(needed)
            if at is None:
                return start, needed
            start = max(start, at)
        return start, None

    def run(self, entry: Sequence[Piece], start: float) -> tuple[float, list[Piece]]:
        """When the entry is over, and the results that it leaves."""
        done: list[Piece] = []
        sent = set[Piece]()
        end = start
        for kind, stage, batch in entry:
            end += self.takes[kind][stage]
            if kind == "W":
                continue
            result: Piece = ("F" if kind == "F" else "B", stage, batch)
            done.append(result)
            following = stage + 1 if kind == "F" else stage - 1
            here = self.device_of(stage, batch)
            if 0 <= following < self.stages and self.device_of(following, batch) != here:
                sent.add(result)
                end += self.durations.transfer_exposed_s
        for result in done:
            self.finished[result] = end
            self.arrives[result] = end + (self.behind_s if result in sent else 0.0)
        return end, done
