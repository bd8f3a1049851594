"""A replay of a schedule's orders that waits for what each piece needs: the plain way, with equal stages.

The closed forms, and the timeline that runs stages of any seconds, are compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.timeline.orders import Order, Piece


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
