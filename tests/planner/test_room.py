"""What of a device's memory a plan may take, and from where on that is at risk."""

from __future__ import annotations

import pytest

from costmodel.scenario import Scenario
from planner.search.room import Room
from tests.scenarios import scenario_of


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return scenario_of()


@pytest.mark.parametrize(
    ("least", "most", "verdict"),
    [(0.7, 0.7, "fits"), (0.79, 0.79, "fits"), (0.81, 0.81, "at_risk"), (1.0, 1.0, "at_risk"), (1.01, 1.01, "too_big"),
     (0.5, 0.9, "at_risk"), (0.5, 1.1, "unknown"), (1.01, 2.0, "too_big")],
)  # fmt: skip
def test_the_upper_end_of_the_interval_decides(scenario: Scenario, least: float, most: float, verdict: str) -> None:
    room = Room.of(scenario, 0.25)
    assert room.verdict_of(least * scenario.usable_bytes, most * scenario.usable_bytes) == verdict


def test_a_prediction_that_is_less_sure_is_at_risk_earlier(scenario: Scenario) -> None:
    surer, less = Room.of(scenario, 0.1), Room.of(scenario, 0.5)
    assert less.at_risk_above_bytes < surer.at_risk_above_bytes < scenario.usable_bytes


def test_what_the_process_would_hold_must_lie_on_the_device(scenario: Scenario) -> None:
    """However sure a prediction is, the allocator's pool and the context have to have room as well."""
    room, capacity = Room.of(scenario, 0.0), scenario.cluster.accelerator.memory_bytes
    parameters = scenario.resolved.parameters
    assert parameters.on_device(scenario.usable_bytes) > capacity, "else this says nothing"
    assert parameters.on_device(room.at_risk_above_bytes) == pytest.approx(capacity)
    assert room.verdict_of(scenario.usable_bytes, scenario.usable_bytes) == "at_risk"
