"""The groups that a plan's communication goes over, and the tiers that they cross."""

from __future__ import annotations

from costmodel.facts import Facts
from costmodel.placement import PlacedGroup, placement_of
from costmodel.plan_rows import plan_of
from tests.scenarios import plan_row, scenario_of

BATCH = 576


def _placed(
    model: str = "llama-3-8b", cluster: str = "dgx-h100", devices: int = 64, **axes: int
) -> dict[str, PlacedGroup]:
    scenario = scenario_of(model, cluster, devices, BATCH)
    plan = plan_of(scenario, plan_row(BATCH, **axes))
    return {group.name: group for group in placement_of(scenario, Facts.of(scenario), plan)}


def test_groups_lie_inside_each_other_with_tp_innermost() -> None:
    found = _placed(tp=4, cp=2, pp=2, dp=4)
    assert {name: (group.size, group.stride) for name, group in found.items()} == {
        "tp": (4, 1),
        "cp": (2, 4),
        "dp": (8, 4),
        "pp": (2, 32),
    }
    assert [crossed.tier for crossed in found["cp"].crossed] == [0]
    # Two of them in each node, and all of them over the network.
    assert [(crossed.tier, crossed.members) for crossed in found["dp"].crossed] == [(0, 2), (1, 8)]
    assert [crossed.tier for crossed in found["pp"].crossed] == [1]
    reached = [crossed.reached_bytes_per_s for crossed in found["dp"].crossed]
    assert 0 < reached[1] < 50e9 < reached[0] < 450e9


def test_a_large_domain_keeps_experts_inside() -> None:
    found = _placed("mixtral-8x7b", "gb200-nvl72", 144, ep=8, dp=144)
    assert "tp" not in found
    assert [(crossed.tier, crossed.members) for crossed in found["ep"].crossed] == [(0, 8)]
    assert (found["expert_dp"].size, found["expert_dp"].stride) == (18, 8)
    assert [crossed.members for crossed in found["expert_dp"].crossed] == [9, 18]


def test_replicas_of_shards_are_a_group_of_their_own_and_without_shards_all_are_one() -> None:
    hybrid = _placed(dp=64, dp_shard=8, dp_replicate=8, zero_stage=3)
    assert (hybrid["dp"].size, hybrid["dp_replicate"].size, hybrid["dp_replicate"].stride) == (8, 8, 8)
    plain = _placed(dp=64, zero_stage=0)
    assert list(plain) == ["dp"]
    assert (plain["dp"].size, plain["dp"].stride) == (64, 1)
