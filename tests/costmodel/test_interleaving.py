"""Interleaved pipelines with chunks of unlike times: slot by slot, against the order executed piece by piece."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.arrays import Num
from costmodel.interleaving import unlike_chunks_s
from costmodel.timeline.durations import Durations
from costmodel.timeline.execute import execute
from costmodel.timeline.orders import orders_of


def even_s(pp: int, vpp: int, m: int, forward: Num, backward: Num) -> float:
    """The closed form of chunks that don't wait for each other."""
    work = (forward + backward).reshape(vpp, pp).sum(axis=0)
    return float(m * work.max() + (pp - 1) / vpp * work.mean())


def found_s(pp: int, vpp: int, m: int, forward: Num, backward: Num) -> float:
    """The same with what chunks wait."""
    one = [np.array([axis]) for axis in (pp, vpp, m)]
    beyond = unlike_chunks_s(*one, forward[np.newaxis], backward[np.newaxis])
    return even_s(pp, vpp, m, forward, backward) + float(beyond[0])


def executed_s(pp: int, m: int, forward: Num, backward: Num) -> float:
    """What executing the order piece by piece takes."""
    none = np.zeros(pp)
    durations = Durations(
        forward_s=forward.tolist(),
        backward_s=backward.tolist(),
        weights_s=np.zeros(len(forward)).tolist(),
        transfer_s=0.0,
        transfer_exposed_s=0.0,
        exchange_s=none.tolist(),
        update_s=none.tolist(),
        fixed_s=0.0,
    )
    orders = orders_of("interleaved_1f1b", pp, len(forward) // pp, m)
    return max(execute(orders, durations, lambda stage, _: stage % pp).ends_s)


@pytest.mark.parametrize("seed", range(60))
def test_steps_of_any_chunks_take_what_their_order_takes(seed: int) -> None:
    """Exactly up to four rounds of the pipeline, and with more of them never less, and hardly more."""
    draw = np.random.default_rng(seed)
    pp, vpp = int(draw.integers(2, 9)), int(draw.integers(2, 7))
    m = pp * int(draw.integers(1, 13)) if seed % 3 else int(draw.integers(1, pp))
    layers = draw.integers(1, 4) + draw.integers(0, 2, pp * vpp)
    layers[-1] += draw.integers(0, 6)
    forward = layers * 1.0
    backward = layers * draw.uniform(1.6, 2.4)
    even, executed = even_s(pp, vpp, m, forward, backward), executed_s(pp, m, forward, backward)
    found = found_s(pp, vpp, m, forward, backward)
    few = m <= 4 * pp
    assert found >= max(even, executed) * (1.0 - 1e-9)
    assert found <= max(even, executed) * (1.0 + (1e-9 if few else 0.03))


def test_chunks_of_one_size_wait_for_none_even_with_a_head() -> None:
    for pp, vpp, m in ((2, 2, 4), (4, 3, 8), (8, 4, 64)):
        for head in (0.0, 0.5, 3.0):
            forward = np.ones(pp * vpp)
            forward[-1] += head
            even = even_s(pp, vpp, m, forward, 2.0 * forward)
            assert found_s(pp, vpp, m, forward, 2.0 * forward) == pytest.approx(even, rel=1e-9)


def test_longer_chunks_with_the_same_number_on_all_devices_wait_less() -> None:
    """80 layers on 4 x 15 chunks: the first device's longer chunks last, or where the others have theirs."""
    front, back = [2] * 5 + [1] * 10, [1] * 10 + [2] * 5

    def step(*devices: list[int]) -> float:
        forward = np.array(devices, dtype=float).T.ravel()
        return found_s(4, 15, 8, forward, 2.0 * forward) / even_s(4, 15, 8, forward, 2.0 * forward)

    assert step(back, front, front, front) > 1.1
    assert step(front, front, front, front) < 1.04


def test_where_micro_batches_are_no_multiple_of_devices_groups_are_larger() -> None:
    draw = np.random.default_rng(7)
    for pp, vpp, m in ((4, 2, 10), (3, 3, 8), (5, 2, 14)):
        forward = draw.uniform(1.0, 2.0, pp * vpp)
        executed = executed_s(pp, m, forward, 2.0 * forward)
        assert found_s(pp, vpp, m, forward, 2.0 * forward) == pytest.approx(
            max(executed, even_s(pp, vpp, m, forward, 2.0 * forward)), rel=0.05
        )
