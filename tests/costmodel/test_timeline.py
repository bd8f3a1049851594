"""Steps executed piece by piece: against hand-computed cases, the plain replay, and the closed form."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from costmodel.facts import Facts
from costmodel.plan_rows import plan_of
from costmodel.predict import predict
from costmodel.scenario import Scenario
from costmodel.spec.plan import SCHEDULES, Plan
from costmodel.table import PlanTable, stage_table
from costmodel.timeline.durations import Durations, durations_of
from costmodel.timeline.execute import execute
from costmodel.timeline.orders import Order, orders_of
from costmodel.timeline.timeline import Timeline, timeline_of
from tests.costmodel.pipeline_orders import replay
from tests.scenarios import load_framework, plan_row, scenario_of

CHUNKS = {"interleaved_1f1b": 2, "zb_v": 2, "dualpipe_v": 2}
FRAMEWORKS = {"zb_v": "torchtitan", "dualpipe_v": "torchtitan", "gpipe": "torchtitan", "dualpipe": "hai-llm"}


def durations(stages: int, devices: int, **seconds: Any) -> Durations:
    """Equal stages of F 1, B 2 and W 1 without anything around, but for what is named."""
    pieces: dict[str, Any] = {"forward_s": [1.0] * stages, "backward_s": [2.0] * stages, "weights_s": [1.0] * stages}
    ends: dict[str, Any] = {"exchange_s": [0.0] * devices, "update_s": [0.0] * devices, "fixed_s": 0.0}
    return Durations(**(pieces | ends | {"transfer_s": 0.0, "transfer_exposed_s": 0.0} | seconds))


def ended(orders: list[Order], d: Durations) -> float:
    """Seconds of orders of a loop."""
    return max(execute(orders, d, lambda stage, _: stage % len(orders)).ends_s)


def scenario_under(schedule: str, model: str = "llama-3-8b", batch: int = 128, devices: int = 32) -> Scenario:
    scenario = scenario_of(model, devices=devices, global_batch_size=batch, seq_len=4096)
    return scenario.model_copy(update={"framework": load_framework(FRAMEWORKS.get(schedule, "megatron-core"))})


def planned(scenario: Scenario, schedule: str, pp: int, **axes: Any) -> tuple[Plan, float]:
    """A plan by recipe, and the step time of the closed form."""
    axes = {"pp": pp, "vpp": CHUNKS.get(schedule, 1), "schedule": SCHEDULES.index(schedule), "zero_stage": 0} | axes
    row = plan_row(scenario.workload.global_batch_size, **axes)
    table = PlanTable.of_rows([row])
    priced = predict(Facts.of(scenario), table, stage_table(scenario, table))
    return plan_of(scenario, table.row(0)), float(priced.step_time_s[0])


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_1f1b_of_equal_stages_takes_m_plus_p_minus_1_times_f_plus_b() -> None:
    assert ended(orders_of("1f1b", 4, 1, 8), durations(4, 4)) == (8 + 4 - 1) * (1 + 2)
    assert ended(orders_of("gpipe", 4, 1, 8), durations(4, 4)) == (8 + 4 - 1) * (1 + 2)
    assert ended(orders_of("zb_h1", 4, 1, 8), durations(4, 4)) == 8 * 3 + 3 * (1 + 2 - 2)
    assert ended(orders_of("interleaved_1f1b", 4, 2, 8), durations(8, 4)) == (8 * 2 + 3) * 3


def test_one_slow_stage_is_waited_for_by_every_micro_batch() -> None:
    """The last of two stages takes twice as long: F there, then m of its F and B, then B here."""
    slow = {"forward_s": [1.0, 2.0], "backward_s": [2.0, 4.0]}
    assert ended(orders_of("1f1b", 2, 1, 5), durations(2, 2, **slow)) == 1 + 5 * 6 + 2


def test_a_transfer_that_nothing_hides_takes_its_time_between_stages_and_from_its_sender() -> None:
    """Two stages, one micro-batch: F, send, F, B, send, B."""
    sent = durations(2, 2, transfer_s=0.5, transfer_exposed_s=0.5)
    assert ended(orders_of("1f1b", 2, 1, 1), sent) == 1 + 0.5 + 1 + 2 + 0.5 + 2
    hidden = durations(2, 2, transfer_s=0.5)
    assert ended(orders_of("gpipe", 2, 1, 4), hidden) == 1 + 0.5 + 4 * 1 + 4 * 2 + 0.5 + 2


def test_uneven_chunks_cost_an_interleaved_pipeline_more_than_the_closed_form_says() -> None:
    """All devices work as long, but a device with a short chunk waits for one that has a long one at that time."""
    even = [4 / 3] * 12
    alike = [2.0] * 4 + [1.0] * 8
    crossed = [1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0]
    orders, closed_form = orders_of("interleaved_1f1b", 4, 3, 32), (32 + 3 / 3) * 3 * 4.0
    took = []
    for ahead in (even, alike, crossed):
        chunks = durations(12, 4, forward_s=ahead, backward_s=[2 * seconds for seconds in ahead])
        took.append(ended(orders, chunks) / closed_form)
    assert took == pytest.approx([1.0, 1.08, 1.11], abs=0.01)


def test_orders_that_can_not_be_executed_are_refused() -> None:
    orders: list[Order] = [[(("A", 0, 0),)], [(("F", 1, 0),), (("A", 1, 0),)]]
    with pytest.raises(ValueError, match="so few micro-batches"):
        execute(orders, durations(2, 2), lambda stage, _: stage)


# -- against the plain replay ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equal_stages_take_what_the_replay_says(schedule: str) -> None:
    pp, m, vpp = 4, 16, CHUNKS.get(schedule, 1)
    orders = orders_of(schedule, pp, vpp, m)  # type: ignore[arg-type]  # a parametrised word of SCHEDULES
    stages = pp * vpp
    d = durations(stages, pp, forward_s=[1.0] * stages, backward_s=[2.2] * stages, weights_s=[0.9] * stages)
    expected = replay(orders, stages, forward=1.0, inputs=1.3, weights=0.9)
    assert ended(orders, d) == pytest.approx(expected.seconds)


# -- plans -----------------------------------------------------------------------------------------------------------


def busy(timeline: Timeline) -> dict[int, float]:
    """Seconds in which each device does something."""
    found: dict[int, float] = defaultdict(float)
    for device, start, end in {(event.device, event.start_s, event.end_s) for event in timeline.events}:
        found[device] += end - start
    return found


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_micro_batch_passes_every_chunk_once_and_no_device_does_two_things_at_once(schedule: str) -> None:
    scenario = scenario_under(schedule)
    plan, _ = planned(scenario, schedule, 4, tp=2, dp=4)
    timeline = timeline_of(scenario, plan)
    m, visits = plan.num_microbatches, defaultdict(list)
    for event in timeline.events:
        if event.kind in ("forward", "backward", "backward_inputs"):
            visits[event.micro_batch, event.kind == "forward"].append((event.device, event.chunk))
    of_one_way = plan.pp * plan.vpp
    assert sorted(visits) == sorted((batch, ahead) for batch in range(m) for ahead in (False, True))
    assert all(len(set(places)) == len(places) == of_one_way for places in visits.values())
    for device in range(plan.pp):
        own = sorted({(event.start_s, event.end_s) for event in timeline.events if event.device == device})
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(own))
    assert max(event.end_s for event in timeline.events) == pytest.approx(timeline.step_time_s)
    assert [event.start_s for event in timeline.events] == sorted(event.start_s for event in timeline.events)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v2-lite"])
def test_the_closed_form_agrees_for_even_layers(schedule: str, model: str) -> None:
    scenario = scenario_under(schedule, model)
    for axes in ({"tp": 2, "dp": 4}, {"tp": 1, "dp": 2, "micro_batch_size": 2, "recompute": 2}):
        plan, step = planned(scenario, schedule, 4, **axes)
        assert timeline_of(scenario, plan).step_time_s == pytest.approx(step, rel=0.05)


def test_without_a_pipeline_the_step_is_the_closed_form() -> None:
    scenario = scenario_of(devices=8, global_batch_size=64)
    for axes in ({"recompute": 2}, {"zero_stage": 3}, {"zero_stage": 2, "micro_batch_size": 2}):
        plan, step = planned(scenario, "1f1b", 1, tp=4, dp=2, **axes)
        assert timeline_of(scenario, plan).step_time_s == pytest.approx(step, rel=1e-9)


def test_layers_of_ones_own_and_some_that_run_again_have_their_own_seconds() -> None:
    scenario = scenario_of(devices=8, global_batch_size=32)
    row = planned(scenario, "1f1b", 4, tp=1, dp=2, recompute=2)[0]
    plan = row.model_copy(update={"layers_per_stage": (4, 8, 10, 10), "recomputed_layers_per_stage": (4, 2, 0, 10)})
    d = durations_of(Facts.of(scenario), scenario, plan)
    none = plan.model_copy(update={"recompute": "none", "recomputed_layers_per_stage": (0,) * 4})
    ahead, again = (
        np.array(d.forward_s),
        np.array(d.backward_s) - durations_of(Facts.of(scenario), scenario, none).backward_s,
    )
    layer = (ahead[2] - ahead[1]) / 2
    assert again == pytest.approx(layer * np.array([4, 2, 0, 10]), rel=1e-6)
    work = busy(timeline_of(scenario, plan))
    assert max(work, key=lambda device: work[device]) == 3


def test_a_long_step_is_cut_to_few_events_and_its_time_follows() -> None:
    scenario = scenario_of(devices=8, global_batch_size=1024, seq_len=2048)
    for schedule in ("1f1b", "interleaved_1f1b"):
        plan, _ = planned(scenario, schedule, 4, tp=2, dp=1)
        whole, cut = timeline_of(scenario, plan), timeline_of(scenario, plan, most_events=900)
        assert whole.num_microbatches == 1024
        assert whole.left_out_s == 0.0
        assert cut.num_microbatches < 200
        assert len(cut.events) < 1000
        assert cut.step_time_s == pytest.approx(whole.step_time_s, rel=1e-6)
        assert cut.left_out_s + max(event.end_s for event in cut.events) == pytest.approx(cut.step_time_s)
