"""Closed forms of the pipeline schedules against a replay of the orders that Megatron-Core executes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from costmodel.arrays import num
from costmodel.schedules import CODE, chunks_alive, waiting_chunks

Work = tuple[bool, int, int]  # is backward, chunk, micro-batch


def order_of_work(pp: int, vpp: int, m: int, stage: int) -> list[Work]:
    """What one device does in turn: warm-up forwards, one forward and one backward at a time, backwards to the end.

    Megatron-Core, pipeline_parallel/schedules.py: the warm-up is ``p - s - 1`` micro-batches, interleaved
    ``2 (p - s - 1) + (v - 1) p`` chunks, in groups of p micro-batches a chunk.
    """
    forwards: list[Work] = [(False, k // pp % vpp, k // (pp * vpp) * pp + k % pp) for k in range(m * vpp)]
    backwards: list[Work] = [(True, vpp - 1 - chunk, batch) for _, chunk, batch in forwards]
    if vpp == 1:
        forwards, backwards = [(False, 0, k) for k in range(m)], [(True, 0, k) for k in range(m)]
    warm_up = pp - stage - 1 if vpp == 1 else 2 * (pp - stage - 1) + (vpp - 1) * pp
    warm_up = min(warm_up, len(forwards))
    order = forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        order += [forward, backward]
    return order + backwards[len(forwards) - warm_up :]


@dataclass(frozen=True)
class Replay:
    """Seconds of the whole step, and the most chunks alive on each stage; a chunk's forward takes 1, its backward 2."""

    seconds: float
    alive: list[int]


@cache
def replay(pp: int, vpp: int, m: int) -> Replay:
    queues = [order_of_work(pp, vpp, m, stage) for stage in range(pp)]
    finished: dict[tuple[bool, int, int], float] = {}  # (is backward, virtual stage, micro-batch) -> when
    clock, position = [0.0] * pp, [0] * pp
    last = pp * vpp - 1
    moved = True
    while moved:
        moved = False
        for stage in range(pp):
            while position[stage] < len(queues[stage]):
                backward, chunk, batch = queues[stage][position[stage]]
                virtual = chunk * pp + stage
                if backward:
                    needs = [(False, virtual, batch)] + ([(True, virtual + 1, batch)] if virtual < last else [])
                else:
                    needs = [(False, virtual - 1, batch)] if virtual else []
                if not all(need in finished for need in needs):
                    break
                start = max([clock[stage], *(finished[need] for need in needs)])
                clock[stage] = start + (2.0 if backward else 1.0)
                finished[(backward, virtual, batch)] = clock[stage]
                position[stage] += 1
                moved = True
    assert all(position[stage] == len(queues[stage]) for stage in range(pp)), "the order can't be executed"
    alive = [int(np.cumsum([-1 if work[0] else 1 for work in queue]).max()) for queue in queues]
    return Replay(max(clock), alive)


SHAPES = [
    (2, 1, 2),
    (4, 1, 4),
    (4, 1, 16),
    (8, 1, 16),
    (2, 2, 4),
    (4, 2, 4),
    (4, 2, 16),
    (4, 4, 8),
    (8, 3, 16),
    (8, 2, 64),
]


def schedule_of(vpp: int) -> np.ndarray:
    return np.array(CODE["interleaved_1f1b" if vpp > 1 else "1f1b"])


@pytest.mark.parametrize(("pp", "vpp", "m"), SHAPES)
def test_waiting_is_that_of_the_executed_order(pp: int, vpp: int, m: int) -> None:
    """``(p - 1)/v`` times the work of a micro-batch on a device (3 v here), beside m of them that are useful."""
    waiting = float(waiting_chunks(schedule_of(vpp), num(pp), num(vpp)))
    assert replay(pp, vpp, m).seconds == pytest.approx((m + waiting) * 3 * vpp)
    assert waiting / m == pytest.approx((pp - 1) / (vpp * m))


@pytest.mark.parametrize(("pp", "vpp", "m"), SHAPES)
def test_chunks_alive_are_those_of_the_executed_order(pp: int, vpp: int, m: int) -> None:
    stages = num(range(pp))
    counted = chunks_alive(schedule_of(vpp), num(pp), num(vpp), num(m), stages)
    assert counted.tolist() == replay(pp, vpp, m).alive


def alive(schedule: str, pp: int, vpp: int, m: int, stage: int) -> float:
    return float(chunks_alive(np.array(CODE[schedule]), num(pp), num(vpp), num(m), num(stage)))


def test_gpipe_keeps_every_micro_batch_and_1f1b_only_those_on_the_way() -> None:
    """Huang 2018 (arXiv 1811.06965); Narayanan 2021 (arXiv 2104.04473), section 2.2."""
    assert [alive("gpipe", 4, 1, 32, stage) for stage in range(4)] == [32] * 4
    assert [alive("1f1b", 4, 1, 32, stage) for stage in range(4)] == [4, 3, 2, 1]
    assert [alive("zb_h1", 4, 1, 32, stage) for stage in range(4)] == [4, 3, 2, 1]


def test_zero_bubble_schedules() -> None:
    """Qi 2023 (arXiv 2401.10241): H1 keeps a third of 1F1B's bubble; V (arXiv 2405.15362) none, at its peak memory."""
    p, v = num(8), num(1)
    third = waiting_chunks(np.array(CODE["zb_h1"]), p, v) / waiting_chunks(np.array(CODE["1f1b"]), p, v)
    assert third == pytest.approx(1 / 3)
    assert waiting_chunks(np.array(CODE["zb_v"]), p, num(2)) == 0
    assert [alive("zb_v", 8, 2, 64, stage) / 2 for stage in (0, 7)] == [8, 8]


def test_a_schedule_without_a_price_does_not_pass_for_a_cheap_one() -> None:
    assert np.isnan(waiting_chunks(np.array(CODE["dualpipe"]), num(8), num(1)))


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("vpp", [2, 3, 4, 8])
def test_interleaving_keeps_more_alive_than_one_chunk_a_device(pp: int, vpp: int) -> None:
    """Narayanan 2021, section 2.2: the smaller bubble is paid in memory, ``1 + (p - 1)/(p v)`` of 1F1B's on stage 0."""
    m = 4 * pp
    for stage in range(pp):
        assert alive("interleaved_1f1b", pp, vpp, m, stage) / vpp >= alive("1f1b", pp, 1, m, stage)
    first = alive("interleaved_1f1b", pp, vpp, m, 0) / vpp
    assert first / alive("1f1b", pp, 1, m, 0) == pytest.approx(1 + (pp - 1) / (pp * vpp))
