"""Numbers, ranges and nodes as flags have them."""

from __future__ import annotations

import pytest

from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.errors import InvalidInput
from planner.counts import devices_asked, values_of
from planner.nodes import nodes_asked, on_nodes


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8", (8,)),
        ("8..64", (8, 16, 32, 64)),
        ("8..100", (8, 16, 32, 64)),
        ("6..6", (6,)),
        ("8..32:8", (8, 16, 24, 32)),
        ("8..30:10", (8, 18, 28)),
        ("61,8,16, 8", (8, 16, 61)),
        ("8..32,61,24..40:8", (8, 16, 24, 32, 40, 61)),
    ],
)
def test_ranges_double_step_and_list(text: str, values: tuple[int, ...]) -> None:
    assert values_of("devices", text, 256) == values


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("8..", "both ends"),
        ("..8", "both ends"),
        ("64..8", "upwards, as in 8..64"),
        ("8:2", "a step goes with a range"),
        ("8..64:0", "at least 1"),
        ("0..8", "at 1 or above"),
        ("8..x", "whole number"),
        ("", "whole number"),
        ("8,,16", "whole number"),
        ("1..1000000", "more than the 10 points"),
        ("1..1000000000:1", "more than the 10 points"),
        ("9" * 30, "digits"),
    ],
)
def test_what_is_no_range_is_refused_with_the_field(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as caught:
        values_of("devices", text, 10)
    assert caught.value.field == "devices"


def test_devices_of_one_question_are_a_number_or_at_least_and_at_most() -> None:
    assert devices_asked("61") == (61, None)
    assert devices_asked("8..4096") == (4096, 8)
    assert devices_asked("..4096") == (4096, 1)
    with pytest.raises(InvalidInput, match="upper end"):
        devices_asked("8..")
    with pytest.raises(InvalidInput, match=r"8\.\.16"):
        devices_asked("16..8")


def test_nodes_are_counted_or_named() -> None:
    assert nodes_asked("61") == 61
    assert nodes_asked("0-3,7,9-11") == (0, 1, 2, 3, 7, 9, 10, 11)
    for text, told in (("0", "1 to"), ("3-1", "upwards"), ("1,1", "1 is named again"), ("a-b", "'a-b'"), ("", "''")):
        with pytest.raises(InvalidInput, match=told) as caught:
            nodes_asked(text)
        assert caught.value.field == "nodes"


def test_a_domain_is_as_large_as_the_least_that_the_nodes_leave_of_one() -> None:
    rack = load_cluster("gb200-nvl72")
    whole = tuple(range(36))
    assert on_nodes(rack, whole) == (rack, None)
    without = [node for node in whole if node not in (3, 20, 21)]
    found, told = on_nodes(rack, without)
    assert found.scale_up_devices == 64  # 16 of 18 nodes of the second rack, 4 devices each
    assert told is not None
    assert "64 devices" in told
    alone, told = on_nodes(rack, (0, 18, 36))
    assert alone.scale_up_devices == 4
    assert told is not None


def test_nodes_of_one_domain_each_change_nothing_when_some_are_missing() -> None:
    box = load_cluster("dgx-h100")
    assert on_nodes(box, (0, 5, 9)) == (box, None)


def test_an_outer_tier_shrinks_with_the_inner_one() -> None:
    pods = load_cluster("meta-llama3-h100")
    nodes_of_a_pod = next(t.group_devices for t in pods.tiers if (t.group_devices or 0) > 8) // pods.devices_per_node
    found, told = on_nodes(pods, (*range(nodes_of_a_pod - 1), *range(nodes_of_a_pod, 2 * nodes_of_a_pod)))
    assert told is not None
    assert [t.group_devices for t in found.tiers][:2] == [8, (nodes_of_a_pod - 1) * pods.devices_per_node]


def test_a_node_beyond_the_last_is_refused() -> None:
    small = load_cluster("dgx-h100").model_copy(update={"max_devices": 32})
    with pytest.raises(InvalidInput, match="nodes 0 to 3"):
        on_nodes(small, (0, 4))
