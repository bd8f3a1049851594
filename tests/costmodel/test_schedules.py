"""Closed forms of the pipeline schedules against a replay of the orders that frameworks execute."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from costmodel.arrays import num
from costmodel.schedules import CODE, chunks_alive, chunks_held, least_waiting, placement_of, waiting_s
from costmodel.spec.plan import SCHEDULES
from costmodel.stages import Layout, Placement, stage_kinds, virtual_stage
from costmodel.timeline.orders import orders_of
from tests.costmodel.pipeline_orders import Replay, replay

SPLIT = ("zb_h1", "zb_v", "dualpipe", "dualpipe_v")
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


@cache
def replayed(
    schedule: str, pp: int, vpp: int, m: int, forward: float = 1.0, inputs: float = 1.0, weights: float = 1.0
) -> Replay:
    """The seconds are those of a whole device, shared by its stages; both ways each is visited by half."""
    orders = orders_of(schedule, pp, vpp, m)  # type: ignore[arg-type]  # a parametrised word of SCHEDULES
    return replay(orders, pp * vpp, forward=forward / vpp, inputs=inputs / vpp, weights=weights / vpp)


def waiting(
    schedule: str, pp: int, vpp: int, forward: float = 1.0, inputs: float = 1.0, weights: float = 1.0, m: int = 1000
) -> float:
    code = np.array(CODE[schedule])
    seconds = {"forward": num(forward), "backward": num(inputs + weights), "weights": num(weights)}
    return float(waiting_s(code, num(pp), num(vpp), num(m), **seconds))


def alive(schedule: str, pp: int, vpp: int, m: int, stage: int) -> float:
    return float(chunks_alive(np.array(CODE[schedule]), num(pp), num(vpp), num(m), num(stage)))


@pytest.mark.parametrize(("pp", "vpp", "m"), SHAPES)
def test_waiting_is_that_of_the_executed_order(pp: int, vpp: int, m: int) -> None:
    """``(p - 1)/v`` times the work of a micro-batch on a device (3 here), beside m of them that are useful."""
    schedule = "interleaved_1f1b" if vpp > 1 else "1f1b"
    assert replayed(schedule, pp, vpp, m).seconds == pytest.approx(3 * m + waiting(schedule, pp, vpp))
    assert waiting(schedule, pp, vpp) / (3 * m) == pytest.approx((pp - 1) / (vpp * m))


@pytest.mark.parametrize(("pp", "vpp", "m"), SHAPES)
def test_chunks_alive_are_those_of_the_executed_order(pp: int, vpp: int, m: int) -> None:
    schedule = "interleaved_1f1b" if vpp > 1 else "1f1b"
    counted = [alive(schedule, pp, vpp, m, stage) for stage in range(pp)]
    assert counted == replayed(schedule, pp, vpp, m).alive


@pytest.mark.parametrize(("pp", "m"), [(2, 4), (4, 16), (8, 32)])
def test_gpipe_waits_as_1f1b_does_and_keeps_every_micro_batch(pp: int, m: int) -> None:
    """Huang 2018 (arXiv 1811.06965); Narayanan 2021 (arXiv 2104.04473), section 2.2."""
    found = replayed("gpipe", pp, 1, m)
    assert found.seconds == pytest.approx(3 * m + waiting("gpipe", pp, 1))
    assert found.alive == [alive("gpipe", pp, 1, m, stage) for stage in range(pp)] == [m] * pp
    assert [alive("1f1b", 4, 1, 32, stage) for stage in range(4)] == [4, 3, 2, 1]


@pytest.mark.parametrize(("pp", "m"), [(2, 8), (4, 16), (8, 32), (8, 17)])
@pytest.mark.parametrize("seconds", [(1, 1, 1), (1, 1.3, 1), (1, 1, 0.7), (1, 1.5, 0.8)])
@pytest.mark.parametrize("schedule", SPLIT)
def test_split_backward_passes_wait_as_their_replay_does(
    schedule: str, pp: int, m: int, seconds: tuple[float, float, float]
) -> None:
    """The published formulas; DualPipe's, made for equal parts, by at most a sixth of the bubble above its replay."""
    m, vpp = (2 * m if schedule == "dualpipe" else m), 2 if schedule.endswith("_v") else 1
    found, formula = replayed(schedule, pp, vpp, m, *seconds), waiting(schedule, pp, vpp, *seconds, m=m)
    waited = found.seconds - m * sum(seconds)
    assert [pytest.approx(m * sum(seconds))] * pp == found.work
    if schedule.startswith("dualpipe") and len(set(seconds)) > 1:
        assert formula * 5 / 6 - 1e-9 <= waited <= formula + 1e-9
    else:
        assert waited == pytest.approx(formula)
    assert waited + m * sum(seconds) <= replayed("1f1b", pp, 1, m, *seconds).seconds


@pytest.mark.parametrize("seconds", [(1, 1, 1), (1, 1.3, 1), (1, 1, 0.7), (1, 1.5, 0.8)])
@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("schedule", ["zb_h1", "zb_v"])
def test_few_micro_batches_leave_a_zero_bubble_pipeline_empty(
    schedule: str, pp: int, seconds: tuple[float, float, float]
) -> None:
    """Then its bubble is larger than the published one; in a V to 5 % of the step."""
    vpp = 2 if schedule == "zb_v" else 1
    for m in range(1, 2 * pp):
        found = replayed(schedule, pp, vpp, m, *seconds).seconds
        formula = m * sum(seconds) + waiting(schedule, pp, vpp, *seconds, m=m)
        assert formula == pytest.approx(found, rel=1e-9 if schedule == "zb_h1" else 0.05)


@pytest.mark.parametrize(("pp", "m"), [(2, 8), (4, 16), (8, 32)])
@pytest.mark.parametrize("schedule", SPLIT)
def test_split_backward_passes_keep_alive_what_their_replay_does(schedule: str, pp: int, m: int) -> None:
    """p micro-batches on every device; DualPipe one stage more (DeepSeek-V3, arXiv 2412.19437, table 2)."""
    m, vpp = (2 * m if schedule == "dualpipe" else m), 2 if schedule.endswith("_v") else 1
    kept = replayed(schedule, pp, vpp, m).alive
    assert kept == [alive(schedule, pp, vpp, m, stage) for stage in range(pp)]
    of_1f1b = {"zb_h1": pp, "zb_v": 2 * pp, "dualpipe": pp + 1, "dualpipe_v": 2 * pp + 1}
    assert kept == [of_1f1b[schedule]] * pp


def test_published_bubbles() -> None:
    """DeepSeek-V3, table 2, at PP 16 with F, B and W of 1, 2 and 1: (PP - 1)(F + B - 2W), (PP/2 - 1)(F&B + B - 3W)."""
    assert waiting("1f1b", 16, 1) == 15 * 3
    assert waiting("zb_h1", 16, 1) == 15 * (1 + 2 - 2)
    assert waiting("dualpipe", 16, 1) == 7 * (3 + 2 - 3)
    # Cut in half: eight devices hold the sixteen stages, and a device's pass is that of two.
    assert waiting("dualpipe_v", 8, 2, 2, 2, 2) == 7 * (3 + 2 - 3)
    # H1 keeps a third of 1F1B's bubble (Qi 2023, arXiv 2401.10241), V a sixth until all have ended.
    assert waiting("zb_h1", 8, 1) / waiting("1f1b", 8, 1) == pytest.approx(1 / 3)
    assert waiting("zb_v", 8, 2) / waiting("1f1b", 8, 1) == pytest.approx(1 / 6)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_relaxation_waits_no_longer(schedule: str) -> None:
    vpp = 1 if schedule in ("gpipe", "1f1b", "zb_h1", "dualpipe") else 2
    for pp in (1, 2, 8):
        for seconds in ((1.0, 1.0, 1.0), (1.0, 0.9, 1.0), (0.2, 1.0, 0.9)):
            least = float(least_waiting(np.array(CODE[schedule]), num(pp), num(vpp))) * sum(seconds)
            assert 0 <= least <= waiting(schedule, pp, vpp, *seconds) + 1e-12
        assert waiting(schedule, 1, vpp) == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_devices_hold_the_stages_that_the_replay_runs_there(schedule: str) -> None:
    """Layers, embedding and head lie where the order of work has the virtual stages."""
    pp, vpp = 4, 2 if schedule in ("interleaved_1f1b", "zb_v", "dualpipe_v") else 1
    orders = orders_of(schedule, pp, vpp, 16)  # type: ignore[arg-type]  # a parametrised word of SCHEDULES
    run = [sorted({stage for entry in order for _, stage, _ in entry}) for order in orders]
    placement = placement_of(schedule)  # type: ignore[arg-type]  # a parametrised word of SCHEDULES
    if placement != Placement.BOTH_WAYS:
        assert run == [sorted(virtual_stage(placement, pp, d, c) for c in range(vpp)) for d in range(pp)]
    # As many dense layers in front as the first virtual stage has.
    kinds = stage_kinds(4 * pp * vpp, 4, pp, vpp, Layout.EVEN, placement)
    assert kinds is not None
    assert [kind.dense_layers > 0 for kind in kinds] == [0 in stages for stages in run]
    assert [kind.has_embedding for kind in kinds] == [0 in stages for stages in run]
    assert [kind.has_head for kind in kinds] == [pp * vpp - 1 in stages for stages in run]
    assert {kind.dense_layers + kind.moe_layers for kind in kinds} == {4 * len(run[0])}
    assert len(run[0]) == float(chunks_held(np.array(CODE[schedule]), num(vpp)))
    assert {kind.work_share for kind in kinds} == {0.5 if placement == Placement.BOTH_WAYS else 1.0}


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("vpp", [2, 3, 4, 8])
def test_interleaving_keeps_more_alive_than_one_chunk_a_device(pp: int, vpp: int) -> None:
    """Narayanan 2021, section 2.2: the smaller bubble is paid in memory, ``1 + (p - 1)/(p v)`` of 1F1B's on stage 0."""
    m = 4 * pp
    for stage in range(pp):
        assert alive("interleaved_1f1b", pp, vpp, m, stage) / vpp >= alive("1f1b", pp, 1, m, stage)
    first = alive("interleaved_1f1b", pp, vpp, m, 0) / vpp
    assert first / alive("1f1b", pp, 1, m, 0) == pytest.approx(1 + (pp - 1) / (pp * vpp))
