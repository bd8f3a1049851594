"""What runs were like, whether a case lies inside of that, and how much wider intervals are where it doesn't."""

from __future__ import annotations

from math import log2

import pytest

from costmodel.calibration.calibration import Calibration, load_calibration
from costmodel.calibration.ranges import AXES, RunRange, beyond_ranges, farthest, merged
from costmodel.certainty import beyond_of, certainty_of
from costmodel.scenario import Scenario
from tests.scenarios import scenario_of as priced_scenario_of

INSIDE = {"devices": 64, "parameters": 10**10, "seq_len": 4096}
INSIDE |= {"micro_batch_size": 1, "tp": 2, "pp": 2, "cp": 1, "ep": 1}


def ranged(family: str = "hopper", framework: str = "megatron-core", **spans: tuple[int, int]) -> RunRange:
    usual = {
        "devices": (8, 512),
        "parameters": (10**9, 10**11),
        "seq_len": (2048, 8192),
        "micro_batch_size": (1, 4),
        "tp": (2, 8),
        "pp": (1, 8),
        "cp": (1, 1),
        "ep": (1, 1),
    }
    return RunRange(family=family, framework=framework, precisions=("bf16",), runs=10, **(usual | spans))


def beyond(ranges: tuple[RunRange, ...] = (ranged(),), **case: object) -> list[tuple[str, float]]:
    kind = {"family": "hopper", "framework": "megatron-core", "precision": "bf16"}
    kind |= {name: str(value) for name, value in case.items() if name in kind}
    values = INSIDE | {name: value for name, value in case.items() if name not in kind}
    return [(entry.axis, entry.doublings) for entry in beyond_ranges(ranges, **kind, values=values)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ({}, []),
        ({"devices": 512}, []),
        ({"devices": 2048}, [("devices", 2.0)]),
        ({"devices": 2}, [("devices", 2.0)]),
        ({"seq_len": 65536, "cp": 8}, [("seq_len", 3.0), ("cp", 3.0)]),
        ({"tp": 1}, []),  # a degree of one adds nothing that had to be seen
        ({"tp": 12}, [("tp", log2(1.5))]),
        ({"precision": "fp8"}, [("precision", 1.0)]),
        ({"family": "blackwell"}, [("framework", 1.0)]),
        ({"family": "blackwell", "devices": 1024}, [("framework", 1.0), ("devices", 1.0)]),
        ({"framework": "nanotron"}, [("framework", 1.0)]),
    ],
)
def test_what_lies_beyond_and_how_far(case: dict[str, object], found: list[tuple[str, float]]) -> None:
    assert beyond(**case) == found


def test_runs_of_a_framework_on_other_devices_speak_before_those_of_other_frameworks() -> None:
    others = (ranged("ampere", "torchtitan", devices=(8, 16)), ranged("hopper", "nanotron", devices=(8, 4096)))
    (kind, devices) = beyond_ranges(
        others, family="hopper", framework="torchtitan", precision="bf16", values={"devices": 64}
    )
    assert kind.text == "no run on hopper with torchtitan, only on ampere"
    assert devices.text == "devices 64, runs with torchtitan had 8 to 16"
    assert devices.doublings == 2.0


def test_a_calibration_without_ranges_says_nothing() -> None:
    assert beyond((), devices=10**6) == []


def test_the_farthest_axis_decides() -> None:
    far = beyond_ranges(
        (ranged(),), family="hopper", framework="megatron-core", precision="bf16", values={"devices": 1024, "cp": 16}
    )
    assert [entry.doublings for entry in far] == [1.0, 4.0]
    assert farthest(far) == 4.0
    assert farthest(()) == 0.0


def test_ranges_of_one_kind_are_joined_and_others_kept() -> None:
    a, b, other = ranged(devices=(8, 16)), ranged(devices=(4, 64), tp=(1, 2)), ranged("ampere")
    joined = merged([a, other], [b])
    assert [(entry.family, entry.runs, entry.devices, entry.tp) for entry in joined] == [
        ("ampere", 10, (8, 512), (2, 8)),
        ("hopper", 20, (4, 64), (1, 8)),
    ]


def test_the_shipped_calibration_says_what_its_runs_were_like() -> None:
    ranges = load_calibration().ranges
    assert sum(entry.runs for entry in ranges) > 1500
    assert len({(entry.family, entry.framework) for entry in ranges}) == len(ranges)
    for entry in ranges:
        assert all(least <= most for least, most in (getattr(entry, axis) for axis in AXES))


def row(**axes: int) -> dict[str, int]:
    return {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "micro_batch_size": 1, "zero_stage": 1, **axes}


def scenario_of(devices: int) -> Scenario:
    return priced_scenario_of(devices=devices, global_batch_size=devices)


def test_intervals_of_time_and_memory_are_wider_outside_and_the_more_the_farther() -> None:
    near, far, farther = (scenario_of(devices) for devices in (1024, 16384, 65536))
    assert beyond_of(near) == ()
    inside, outside, last = (certainty_of(scenario, row(tp=2)) for scenario in (near, far, farther))
    assert inside.beyond == ()
    assert [entry.axis for entry in outside.beyond] == ["devices"]
    assert inside.time_error < outside.time_error < last.time_error
    assert inside.memory_error < outside.memory_error < last.memory_error
    per_doubling = float(far.resolved.parameters.beyond_range_error)
    grown = (1 + outside.time_error) / (1 + inside.time_error)
    assert grown == pytest.approx((1 + per_doubling) ** farthest(outside.beyond))


def test_a_plan_may_lie_outside_of_what_its_scenario_lies_inside_of() -> None:
    scenario = scenario_of(1024)
    assert beyond_of(scenario) == ()
    assert [entry.axis for entry in beyond_of(scenario, row(tp=16))] == ["tp"]


def test_a_calibration_that_says_nothing_of_its_runs_widens_nothing() -> None:
    scenario = scenario_of(16384)
    calibration = Calibration.model_validate(scenario.calibration.model_dump() | {"ranges": ()})
    silent = scenario.model_copy(update={"calibration": calibration})
    assert certainty_of(silent, row(tp=2)).time_error < certainty_of(scenario, row(tp=2)).time_error
