"""What is searched: the values of each axis, the meshes, and the choices inside one mesh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.scenario import Scenario
from costmodel.spec.plan import CP_COMM_TYPES, SCHEDULES
from costmodel.stages import Layout, layers_per_chunk
from planner.search.request import SearchRequest
from planner.search.space import (
    MESH_AXES,
    divisors,
    domains,
    mesh_candidates,
    offered_cp_comm,
    sharding_options,
    stage_options,
)
from tests.scenarios import scenario_of
from tests.searches import request_of

ONE_F_ONE_B, INTERLEAVED = SCHEDULES.index("1f1b"), SCHEDULES.index("interleaved_1f1b")


def meshes(request: SearchRequest) -> list[dict[str, int]]:
    columns = mesh_candidates(request)
    rows = np.stack([columns[axis] for axis in MESH_AXES], axis=1).tolist()
    return [dict(zip(MESH_AXES, row, strict=True)) for row in rows]


def used(mesh: dict[str, int]) -> int:
    return mesh["tp"] * mesh["cp"] * mesh["pp"] * mesh["dp"]


LLAMA_70B = scenario_of("llama-3.1-70b", "dgx-h100", 488, 488, 8192)
EXPERTS = scenario_of("qwen3-30b-a3b", "dgx-h100", 64, 48, 4096)
SMALL = scenario_of("llama-3.2-1b", "dgx-h100", 16, 16, 4096)


@pytest.mark.parametrize("value", [1, 2, 12, 97, 488, 1024, 3600])
def test_divisors_are_all_of_them_in_order(value: int) -> None:
    assert divisors(value) == tuple(d for d in range(1, value + 1) if value % d == 0)


# -- domains ---------------------------------------------------------------------------------------------------------


def test_tp_divides_the_heads_and_stays_on_the_fast_network() -> None:
    assert domains(request_of(LLAMA_70B)).tp == (1, 2, 4, 8)
    rack = scenario_of("llama-3.1-70b", "gb200-nvl72", 144, 144, 8192)
    assert domains(request_of(rack)).tp == (1, 2, 4, 8, 16, 32, 64)
    odd_heads = scenario_of("qwen2.5-14b", "dgx-h100", 16, 16, 4096)
    assert odd_heads.model.num_heads == 40
    assert domains(request_of(odd_heads)).tp == (1, 2, 4, 5, 8)


def test_tp_may_fill_a_node_of_pcie_boards_and_a_box_of_one_has_none() -> None:
    assert domains(request_of(scenario_of("llama-3.2-3b", "rtx4090-8", 8, 8, 2048))).tp == (1, 2, 3, 4, 6, 8)
    assert domains(request_of(scenario_of("llama-3.2-3b", "rtx4090-1", 8, 8, 2048))).tp == (1,)


@pytest.mark.parametrize(
    ("seq_len", "cp"), [(512, (1,)), (1024, (1, 2)), (4096, (1, 2, 4, 8)), (6144, (1, 2, 3, 4, 6, 8, 12)), (4097, (1,))]
)
def test_cp_leaves_pairs_of_chunks_of_a_useful_length(seq_len: int, cp: tuple[int, ...]) -> None:
    assert domains(request_of(scenario_of("llama-3.1-8b", "dgx-h100", 64, 64, seq_len))).cp == cp


def test_pp_reaches_from_one_to_all_layers_as_far_as_the_devices_do() -> None:
    assert domains(request_of(LLAMA_70B)).pp == tuple(range(1, 81))
    assert domains(request_of(SMALL)).pp == tuple(range(1, 17))
    assert domains(request_of(scenario_of("llama-3.1-70b", "dgx-h100", 24, 24, 8192))).pp == tuple(range(1, 25))


def test_only_models_with_experts_have_expert_axes() -> None:
    dense, moe = domains(request_of(LLAMA_70B)), domains(request_of(EXPERTS))
    assert (dense.ep, dense.etp) == ((1,), (1,))
    assert moe.ep == (1, 2, 4, 8, 16, 32, 64)
    assert moe.etp == (1, 2, 4, 8)
    assert all(mesh["etp"] in {1, mesh["tp"]} for mesh in meshes(request_of(EXPERTS)))


def test_pins_reach_beyond_the_defaults_and_forbids_cut_them() -> None:
    assert domains(request_of(SMALL, ("tp=3,16",))).tp == (3, 16)
    assert domains(request_of(SMALL, ("cp=16",))).cp == (16,)
    assert domains(request_of(SMALL, ("pp=17",))).pp == (17,)
    assert domains(request_of(SMALL, ("tp=2..",), ("tp=4",))).tp == (2, 8)
    odd = meshes(request_of(EXPERTS, ("etp=2", "ep=3")))
    assert odd
    assert {(mesh["ep"], mesh["etp"]) for mesh in odd} == {(3, 2)}
    assert any(mesh["tp"] not in {1, 2} for mesh in odd)


def test_a_pinned_dp_needs_not_divide_the_batch() -> None:
    assert {mesh["dp"] for mesh in meshes(request_of(SMALL, ("dp=5",)))} == {5}


def test_a_pinned_micro_batch_may_be_larger_than_the_defaults() -> None:
    scenario = scenario_of("llama-3.2-1b", "dgx-h100", 16, 256, 4096)
    assert {mesh["micro_batch_size"] for mesh in meshes(request_of(scenario))} == {1, 2, 4, 8, 16, 32, 64}
    assert {mesh["micro_batch_size"] for mesh in meshes(request_of(scenario, ("mbs=128,3",)))} == {3, 128}


# -- meshes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", [LLAMA_70B, EXPERTS, SMALL], ids=["70b-on-488", "experts", "1b"])
def test_every_mesh_is_listed_once_and_fits_the_devices_and_the_batch(scenario: Scenario) -> None:
    request = request_of(scenario)
    found, batch = meshes(request), scenario.workload.global_batch_size
    assert len(found) > 100
    assert len({tuple(mesh.values()) for mesh in found}) == len(found)
    for mesh in found:
        assert request.least_devices <= used(mesh) <= scenario.devices
        assert mesh["ep"] * mesh["etp"] <= mesh["tp"] * mesh["cp"] * mesh["dp"]
        assert mesh["num_microbatches"] == max(batch // (mesh["dp"] * mesh["micro_batch_size"]), 1)
        assert mesh["micro_batch_size"] * mesh["dp"] <= batch or mesh["micro_batch_size"] == 1


def test_488_devices_with_a_batch_of_488_are_split_by_61() -> None:
    """488 = 8 * 61: what divides both is searched, and nothing needs a power of two."""
    found = meshes(request_of(LLAMA_70B, min_used=1.0))
    dividing = [mesh for mesh in found if 488 % mesh["dp"] == 0]
    assert {mesh["dp"] for mesh in dividing} == {1, 2, 4, 8, 61, 122, 244, 488}
    assert {used(mesh) for mesh in dividing} == {488}
    assert {mesh["pp"] for mesh in dividing} == {1, 2, 4, 8, 61}


def test_whole_nodes_may_idle_and_how_many_is_the_users_choice() -> None:
    def sizes(min_used: float) -> set[int]:
        found = meshes(request_of(LLAMA_70B, min_used=min_used))
        return {used(mesh) for mesh in found if 488 % mesh["dp"] == 0}

    every, most, half = sizes(1.0), sizes(0.9), sizes(0.5)
    assert every == {488}
    assert min(most) >= 440  # 0.9 * 488 = 439.2
    assert every < most < half
    assert min(half) >= 244


def test_fewest_devices_looks_from_one_device_on() -> None:
    assert {used(mesh) for mesh in meshes(request_of(SMALL, objective="fewest_devices"))} == set(range(1, 17))


def test_where_no_degree_divides_the_batch_one_mesh_stands_for_it() -> None:
    found = meshes(request_of(scenario_of("llama-3.2-1b", "dgx-h100", 16, 13, 4096), ("tp=1", "cp=1", "pp=1")))
    assert [(mesh["dp"], mesh["micro_batch_size"]) for mesh in found] == [(16, 1)]


@pytest.mark.parametrize(
    ("pin", "check"),
    [
        ("num_microbatches=2..4", lambda mesh: 2 <= mesh["num_microbatches"] <= 4),
        ("devices=16", lambda mesh: used(mesh) == 16),
        ("dp=4..8", lambda mesh: 4 <= mesh["dp"] <= 8),
    ],
)
def test_pins_on_what_follows_from_the_mesh_keep_exactly_what_they_name(pin: str, check: Any) -> None:
    kept, every = meshes(request_of(SMALL, (pin,))), meshes(request_of(SMALL))
    assert kept
    assert [mesh for mesh in every if check(mesh)] == kept
    left = meshes(request_of(SMALL, (), (pin,)))
    assert [mesh for mesh in every if not check(mesh)] == left


def test_no_product_of_the_values_gives_no_mesh() -> None:
    assert meshes(request_of(SMALL, ("tp=32",))) == []
    assert meshes(request_of(SMALL, ("devices=3",))) == []


# -- inside one mesh -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pp", [1, 2, 4, 5, 8, 16, 61, 80])
def test_stage_options_are_distinct_and_complete(pp: int) -> None:
    layers, options = LLAMA_70B.model.num_layers, stage_options(request_of(LLAMA_70B), pp)
    shapes = [(vpp, layers_per_chunk(layers, pp, vpp, Layout(layout))) for vpp, layout, _ in options]
    assert len(set(shapes)) == len(shapes)
    deepest = min(16, (layers + 2) // pp) if pp > 1 else 1
    wanted = {
        (vpp, chunks)
        for vpp in range(1, deepest + 1)
        for layout in Layout
        if layout != Layout.MTP_AND_LOSSES_COUNT  # the model predicts one token
        if (chunks := layers_per_chunk(layers, pp, vpp, layout)) is not None
    }
    assert set(shapes) == wanted
    assert all(schedule == (INTERLEAVED if vpp > 1 else ONE_F_ONE_B) for vpp, _, schedule in options)


def test_a_model_that_predicts_further_may_have_a_lighter_last_stage() -> None:
    """DeepSeek-V3's 61 layers on 16 stages: 4, ..., 4, 1 with the prediction layer and both losses."""
    request = request_of(LLAMA_70B.model_copy(update={"model": load_model("deepseek-v3")}))
    options = stage_options(request, 16)
    shapes = [layers_per_chunk(61, 16, vpp, Layout(layout)) for vpp, layout, _ in options]
    assert ((4,),) * 15 + ((1,),) in shapes


def test_without_a_pipeline_there_is_nothing_to_choose() -> None:
    assert stage_options(request_of(LLAMA_70B), 1) == ((1, int(Layout.EVEN), ONE_F_ONE_B),)


def test_pins_on_stages() -> None:
    assert {vpp for vpp, *_ in stage_options(request_of(LLAMA_70B, ("vpp=2..3",)), 4)} == {2, 3}
    assert {vpp for vpp, *_ in stage_options(request_of(LLAMA_70B, ("schedule=1f1b",)), 4)} == {1}
    assert 1 not in {vpp for vpp, *_ in stage_options(request_of(LLAMA_70B, (), ("schedule=1f1b",)), 4)}
    assert {vpp for vpp, *_ in stage_options(request_of(LLAMA_70B, ("vpp=20",)), 4)} == {20}
    # What the framework lacks can be pinned, so that a rule can refuse it by name.
    pinned = stage_options(request_of(LLAMA_70B, ("schedule=gpipe",)), 4)
    assert {schedule for *_, schedule in pinned} == {SCHEDULES.index("gpipe")}


@pytest.mark.parametrize(("tp", "cp", "dp"), [(1, 1, 1), (1, 1, 64), (2, 1, 64), (8, 1, 61), (2, 2, 6), (4, 1, 12)])
def test_sharding_options_multiply_to_dp_and_are_distinct(tp: int, cp: int, dp: int) -> None:
    options = sharding_options(request_of(LLAMA_70B), tp, cp, dp)
    assert len(set(options)) == len(options)
    assert {zero for zero, _, _ in options} == {0, 1, 2, 3}
    for zero, replicate, shard in options:
        assert replicate * shard == dp
        assert (shard == 1) == (zero == 0 or dp == 1)


def test_shards_span_all_replicas_or_stay_within_a_node() -> None:
    def shards(tp: int, cp: int, dp: int) -> set[int]:
        return {shard for zero, _, shard in sharding_options(request_of(LLAMA_70B), tp, cp, dp) if zero}

    assert shards(1, 1, 64) == {64, 8}
    assert shards(2, 1, 64) == {64, 4}
    assert shards(2, 2, 6) == {6, 2}
    assert shards(8, 1, 61) == {61}
    assert shards(1, 1, 6) == {6, 3}


def test_pins_on_sharding_add_sizes_and_cut_others() -> None:
    def options(*pins: str) -> set[tuple[int, int, int]]:
        return set(sharding_options(request_of(LLAMA_70B, pins), 1, 1, 64))

    assert options("dp_shard=16", "zero_stage=1") == {(1, 4, 16)}
    assert options("dp_replicate=2", "zero_stage=3") == {(3, 2, 32)}
    assert options("zero_stage=0") == {(0, 64, 1)}
    assert options("dp_shard=3") == set()


def test_cp_exchanges_are_those_of_the_framework_that_pins_leave() -> None:
    assert offered_cp_comm(request_of(SMALL)) == (0, 1, 2, 3)
    assert offered_cp_comm(request_of(SMALL, (), ("cp_comm=p2p",))) == (1, 2, 3)
    only = scenario_of("llama-3.2-1b", "dgx-h100", 16, 16, 4096, cp_comm_types=("p2p",))
    assert offered_cp_comm(request_of(only)) == (0,)
    assert offered_cp_comm(request_of(only, ("cp_comm=a2a",))) == (CP_COMM_TYPES.index("a2a"),)
