"""Numbers that people worked out, or should have: each is asked of the product, which computes it for plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from costmodel.arrays import Num, num
from costmodel.calibration.calibration import load_calibration
from costmodel.facts import Facts
from costmodel.memory import stage_params
from costmodel.scenario import Scenario
from costmodel.table import PlanTable, stage_table
from costmodel.term_outputs import evaluate_terms
from costmodel.terms.state import state_bytes
from tests.published.user_cases import (
    GB,
    GIB,
    REPORTS,
    answered,
    check_of,
    predicted,
    reported,
    scenario_for,
    verdict,
    world,
)
from tests.scenarios import broken_down, plan_row, recalibrated, scenario_of

STATE = ("parameters", "gradients", "optimizer")


def outputs_of(scenario: Scenario, row: dict[str, int], **parameters: float) -> tuple[Facts, dict[str, Num], PlanTable]:
    """All outputs of all terms for one plan, under other values of some calibration parameters."""
    facts, table = recalibrated(Facts.of(scenario), **parameters), PlanTable.of_rows([row])
    return facts, evaluate_terms(facts, table), table


def params_by_stage(scenario: Scenario, row: dict[str, int]) -> tuple[Num, Num]:
    """(dense, expert) parameters on each stage's device."""
    facts, outputs, table = outputs_of(scenario, row)
    dense, expert = stage_params(facts, outputs, stage_table(scenario, table, every_stage=True))
    return dense[0], expert[0]


def state_of(params: float, *, optimizer: str, shards: int) -> float:
    """Bytes of state of so many parameters of a rank under Megatron's distributed optimizer."""
    work = Facts.of(scenario_of(optimizer=optimizer)).work
    found = state_bytes(
        num(params),
        num(shards),
        num(1),
        param_bytes=work.kept_param_bytes,
        gradient_bytes=work.gradient_bytes,
        optimizer_bytes=work.optimizer_bytes,
    )
    return float(found)


@reported("uc-004")
def test_expert_weights_of_a_rank() -> None:
    """The request that failed was for all the expert weights of the rank once more."""
    scenario = scenario_of("qwen3-235b-a22b", "ascend-910b-8x200g", devices=32, global_batch_size=32, seq_len=1024)
    dense, expert = params_by_stage(scenario, plan_row(32, tp=4, pp=2, ep=8, dp=4))
    width, check = scenario.workload.precision.param_bytes, check_of("uc-004")
    assert expert * width / GIB == pytest.approx(check["value"], abs=check["tol"])
    assert dense.max() * width / GIB == pytest.approx(REPORTS["uc-004"]["computed"]["dense_gib"], abs=check["tol"])


@reported("uc-022")
@pytest.mark.parametrize("devices", [24, 32])
def test_state_of_a_30b_model_under_lion(devices: int) -> None:
    scenario = scenario_for(
        "mpt-30b",
        framework="llm-foundry",
        cluster="dgx1-v100-16gb",
        devices=devices,
        optimizer="lion",
        batch=devices,
        precision="fp16",  # what a V100 has for bf16; the bytes are the same
        calibration=load_calibration(),
    )
    full = broken_down(scenario, plan_row(devices, dp=devices, zero_stage=3))
    total = sum(float(full.memory[name][0, 0]) for name in STATE) * devices / GB
    check = check_of("uc-022")
    assert total == pytest.approx(check["value"], abs=check["tol"])


SETS = {"dsv3": ("deepseek-v3", 8), "qwen3_235b": ("qwen3-235b-a22b", 8)}


@reported("uc-026")
@pytest.mark.parametrize("name", sorted(SETS))
def test_fewest_devices_with_the_optimizer_on_the_host(name: str) -> None:
    """Whole nodes of 8; degrees are free, as the thread gives none, at 4,096 tokens."""
    model, node = SETS[name]
    check = check_of("uc-026")
    fewest = next(
        devices
        for devices in range(node, 2 * check["value"][name] + 1, node)
        if any(
            predicted(
                "uc-026",
                framework="verl + Megatron",
                model_name=model,
                accelerator="H100-80GB",
                devices=devices,
                ep=ep,
                global_batch=4 * devices,
                seq_len=4096,
                offload="optimizer",
            ).feasible
            for ep in (4, 8, 16, 32)
            if devices % ep == 0
        )
    )
    assert check["value"][name] / check["tol_factor"] <= fewest <= check["value"][name] * check["tol_factor"]


@reported("uc-053")
def test_state_of_a_rank_with_two_shards() -> None:
    check = check_of("uc-053")
    assert state_of(4.1055e9, optimizer="adamw", shards=2) / 2**20 == pytest.approx(check["value"], abs=check["tol"])


@reported(
    "uc-110", fails="this fork keeps 7.9 bytes a parameter under Muon; a 32-bit momentum and master copy make 7.0"
)
def test_state_of_a_rank_under_muon() -> None:
    report, check = REPORTS["uc-110"], check_of("uc-110")
    params, shards = report["observed"]["params_per_gpu_b"] * GB, report["config"]["dp"]
    state = state_of(params, optimizer="muon", shards=shards)
    assert state / GIB == pytest.approx(check["value"], abs=check["tol"])


@reported("uc-057")
@pytest.mark.parametrize("model", ["llama-3-8b", "llama-3.1-8b"])
def test_logits_of_81920_tokens_rival_all_saved_layers(model: str) -> None:
    report, check = REPORTS["uc-057"], check_of("uc-057")
    tokens = report["config"]["tokens"]
    scenario = scenario_of(model, devices=8, global_batch_size=8, seq_len=tokens)
    _, outputs, _ = outputs_of(scenario, plan_row(8, dp=8), logits_bytes=2.0)
    assert outputs["logits_bytes"][0] / GIB == pytest.approx(check["value"], abs=check["tol"])
    kept = outputs["boundary_bytes"][0] * scenario.model.num_layers / GIB
    assert kept == pytest.approx(report["observed"]["ckpt_hidden_gib"], abs=check["tol"])


@reported("uc-104")
def test_state_of_zero_3_with_gathered_layers() -> None:
    """6.8B parameters whose largest layer has 131M are Llama 2 7B: its embedding has 32,000 x 4,096."""
    scenario = scenario_for(
        "llama-2-7b", framework="deepspeed", devices=4, batch=4, calibration=load_calibration(), cluster="dgx-a100-80gb"
    )
    full = broken_down(scenario, plan_row(4, dp=4, zero_stage=3))
    found = sum(float(full.memory[name][0, 0]) for name in (*STATE, "gathered_parameters")) / GIB
    check = check_of("uc-104")
    assert found == pytest.approx(check["value"], abs=check["tol"])


@reported("uc-061")
@pytest.mark.parametrize("model", ["llama-3-8b", "qwen3-30b-a3b"])
def test_lengths_that_a_sequence_may_have(model: str) -> None:
    check = check_of("uc-061")
    cp, tp = check["args"]["cp"], check["args"]["tp"]
    legal = {
        length
        for length in range(1, 10 * check["value"] + 1)
        if not verdict(scenario_for(model, seq_len=length), cp=cp, tp=tp)
    }
    assert legal == set(range(check["value"], 10 * check["value"] + 1, check["value"]))


@reported("uc-068")
@pytest.mark.parametrize("model", ["qwen3-next-80b-a3b", "qwen2.5-3b"])
@pytest.mark.parametrize("version", ["0.2", "0.3", "2026-08", "2026-09"])
def test_most_tensor_parallelism_of_two_kv_heads(model: str, version: str) -> None:
    def legal(tp: int) -> bool:
        scenario = scenario_for(model, framework="torchtitan", version=version, devices=16, batch=16)
        experts = {"ep": 16} if scenario.model.moe else {}
        return not verdict(scenario, tp=tp, dp=16 // tp, zero_stage=3, **experts)

    assert max(tp for tp in (1, 2, 4, 8, 16) if legal(tp)) == check_of("uc-068")["value"]


def legal_sizes(model: str, axes: dict[str, int], most: int) -> Iterator[int]:
    """Devices on which a plan with these degrees is legal, for any data parallelism."""
    unit = world(axes)
    for dp in range(1, most // unit + 1):
        if not verdict(scenario_for(model, devices=unit * dp, batch=8 * dp), **axes, dp=dp):
            yield unit * dp


@reported("uc-087")
@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "qwen3-235b-a22b", "mixtral-8x7b"])
def test_fewest_devices_of_folded_experts(model: str) -> None:
    configs, wanted = REPORTS["uc-087"]["config"], check_of("uc-087")["value"]
    assert [min(legal_sizes(model, axes, most=64)) for axes in configs] == wanted


@reported("uc-086")
def test_fewest_devices_of_a_script_that_asks_for_too_many() -> None:
    axes: dict[str, Any] = REPORTS["uc-086"]["config"]
    assert min(legal_sizes("qwen3-30b-a3b", axes, most=64)) == check_of("uc-086")["min_gpus"]


@reported("uc-089")
@pytest.mark.parametrize(("ep", "expert_dp"), [(16, 2), (32, 1)])
@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3-235b-a22b"])
def test_experts_fold_over_context_parallel_ranks(model: str, ep: int, expert_dp: int) -> None:
    axes = {"cp": 16, "dp": 2, "ep": ep}
    assert not verdict(scenario_for(model, cluster="dgx-h200", devices=32, batch=32), **axes)
    scenario = scenario_of(model, "dgx-h200", devices=32, global_batch_size=32)
    assert outputs_of(scenario, plan_row(32, **axes))[1]["expert_shards"][0] == expert_dp


@reported("uc-131")
def test_nodes_that_are_left_in_use_when_some_are_lost() -> None:
    """15 nodes with pp 4 and tp within the node: the answer leaves three idle, and is whole again at 16."""
    check = check_of("uc-131")
    for nodes, used in ((check["args"]["nodes"], check["value"]), (16, 16)):
        answer = answered(
            model="llama-3-70b",
            cluster="dgx-h100",
            devices=8 * nodes,
            global_batch_size=384,
            pins=["tp=8", f"pp={check['args']['pp']}"],
            min_used=0.5,
        )
        assert answer["plans"][0]["plan"]["devices_used"] == 8 * used
