"""Where axes lie in the network, as a page draws it."""

from __future__ import annotations

from typing import Any

from api.dashboard.plans.placement import Placed, placed
from api.dashboard.plans.stored import Priced
from costmodel.plan_rows import plan_of
from tests.scenarios import plan_row, scenario_of

BATCH = 9216


def _placed(cluster: str, **axes: int) -> dict[str, Placed]:
    row = plan_row(BATCH, **axes)
    scenario = scenario_of("llama-3-8b", cluster, row["tp"] * row["cp"] * row["pp"] * row["dp"], BATCH)
    time: dict[str, Any] = {"tp_comm": 0.25}
    return {axis.axis: axis for axis in placed(Priced(id="", scenario=scenario, plan=plan_of(scenario, row)), time)}


def test_each_axis_says_how_far_it_reaches() -> None:
    found = _placed("meta-llama3-h100", tp=8, cp=2, pp=16, dp=64)
    assert {name: axis.stays for name, axis in found.items()} == {
        "tp": "inside one NVLink domain of 8",
        "cp": "inside one unit of 3,072 devices (rail), on 2 nodes",
        "dp": "inside one unit of 3,072 devices (rail), on 128 nodes",
        "pp": "across the spine, 16 nodes",
    }
    assert [axis.tone for axis in found.values()] == ["near", "far", "far", "farther"]
    assert found["tp"].exposed_s == 0.25
    assert found["cp"].exposed_s is None
    assert found["pp"].links == "RoCE (spine), 7:1 oversubscribed"


def test_members_are_marked_with_their_coordinates() -> None:
    picture = _placed("dgx-h100", tp=4, dp=4)["dp"].picture
    said = [cell.said for cell in picture.cells if cell.member]
    assert said == [f"rank {4 * place}: tp 0, dp {place}" for place in range(4)]
    assert len(picture.cells) == 16


def test_a_picture_is_small_whatever_is_joined() -> None:
    rack = _placed("gb200-nvl72", tp=4, dp=144)
    assert {frame.outer for frame in rack["dp"].picture.frames} == {True, False}
    pod = _placed("tpu-v5p", tp=4, dp=1024)
    for axis in (*rack.values(), *pod.values()):
        assert len(axis.picture.cells) <= 144
        assert axis.picture.width < 500
    assert pod["dp"].stays == "inside one ICI domain of 6,144 on 1,024 nodes"
