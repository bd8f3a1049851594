"""What people asked of a planner in words, where the words are about what an answer holds."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from costmodel.runs.columns import Run
from costmodel.runs.predictions import predict_runs
from costmodel.runs.predictions_file import predictions_text
from tests.published.user_cases import answered, reported

EIGHT_B = {"model": "llama-3-8b", "cluster": "dgx-h100", "devices": 16, "global_batch_size": 128, "seq_len": 2048}
THIRTY_B = {"model": "qwen3-30b-a3b", "cluster": "dgx-h100", "devices": 32, "global_batch_size": 256}


def plans_of(**question: Any) -> list[dict[str, Any]]:
    """The plans of an answer, best first."""
    return [entry["plan"] for entry in answered(**question)["plans"]]


@reported("uc-107")
@reported("uc-117")
@pytest.mark.parametrize("question", [EIGHT_B, THIRTY_B], ids=["dense", "experts"])
def test_state_and_activations_are_reported_apart(question: dict[str, Any]) -> None:
    for entry in answered(**question)["plans"]:
        memory = entry["prediction"]["memory"]
        for stage in memory["stages"]:
            assert {"parameters", "gradients", "optimizer", "activations", "logits"} <= set(stage)
        assert memory["peak_bytes"] == pytest.approx(max(sum(stage.values()) for stage in memory["stages"]), abs=10)


@reported("uc-117", fails="state is summed over dense and expert parameters")
def test_state_is_reported_for_dense_and_expert_parameters() -> None:
    stage = answered(**THIRTY_B)["plans"][0]["prediction"]["memory"]["stages"][0]
    assert {"expert_parameters", "expert_gradients", "expert_optimizer"} <= set(stage)


@reported("uc-086")
@pytest.mark.parametrize("framework", ["megatron-core", "deepspeed"])
def test_a_search_names_the_rule_that_more_devices_would_satisfy(framework: str) -> None:
    question = {"model": "moonlight-16b-a3b", "cluster": "dgx-h100", "global_batch_size": 64, "framework": framework}
    pins = ["pp=2", "ep=8", "etp=1", "zero_stage=1"]
    conflict = answered(**question, devices=8, pins=pins)["infeasibility"]["conflict"]
    assert "expert_mesh_divides_world" in {entry["rule"] for entry in conflict}
    assert {plan["devices_used"] for plan in plans_of(**question, devices=16, pins=pins)} == {16}


@reported("uc-114")
def test_devices_may_stay_idle() -> None:
    """Of 24 devices 16 serve a batch of 16 sequences best, as far as idle ones are allowed at all."""
    question = EIGHT_B | {"devices": 24, "global_batch_size": 16, "seq_len": 4096, "cluster": "a800-8x200g"}
    assert plans_of(**question, min_used=0.6, pins=["pp=1", "cp=1"])[0]["devices_used"] == 16
    used = {plan["devices_used"] for plan in plans_of(**question, min_used=0.6, top=10)}
    assert {16, 24} <= used
    assert {plan["devices_used"] for plan in plans_of(**question, min_used=1.0)} == {24}


@reported("uc-115")
def test_the_micro_batch_is_chosen() -> None:
    """The best plan is the best over every micro-batch that could have been asked for."""
    free = answered(**EIGHT_B)
    by_size = {size: answered(**EIGHT_B, pins=[f"mbs={size}"])["best"] for size in (1, 2, 4, 8)}
    assert free["best"] == pytest.approx(min(by_size.values()))
    assert by_size[free["plans"][0]["plan"]["micro_batch_size"]] == pytest.approx(free["best"])
    assert len(set(by_size.values())) == len(by_size)


@reported("uc-116")
def test_an_estimate_says_how_sure_it_is() -> None:
    for entry in answered(**EIGHT_B)["plans"]:
        low, high = entry["prediction"]["step_time_interval_s"]
        assert low < entry["prediction"]["step_time_s"] < high
        assert entry["prediction"]["provenance"] in ("analytic", "calibrated", "measured")


@reported("uc-119")
def test_predictions_are_a_table() -> None:
    """Context by batch, as a file: one row each, and more memory the more tokens."""
    sizes = [(seq_len, micro) for seq_len in (2048, 8192) for micro in (1, 2)]
    runs = [
        Run(
            id=f"{seq_len}x{micro}",
            model_name="qwen2.5-7b",
            accelerator="A100-80GB",
            devices=8,
            tp=8,
            pp=1,
            seq_len=seq_len,
            micro_batch=micro,
            global_batch=8,
            recompute="full",
        )
        for seq_len, micro in sizes
    ]
    table = list(csv.DictReader(io.StringIO(predictions_text(predict_runs(runs)))))
    assert [row["id"] for row in table] == [run.id for run in runs]
    peaks = [float(row["peak_mem_gb"]) for row in table]
    assert peaks == sorted(peaks)


@reported("uc-120")
@pytest.mark.parametrize("seq_len", [16384, 32768])
@pytest.mark.parametrize("framework", ["deepspeed", "accelerate"])
def test_the_smallest_context_parallelism_that_fits_wins_without_tensor_parallelism(
    framework: str, seq_len: int
) -> None:
    question = {"model": "qwen2.5-7b", "cluster": "dgx-h100", "devices": 8, "global_batch_size": 32}
    asked = question | {"seq_len": seq_len, "framework": framework, "forbids": ["recompute=full"]}
    best = plans_of(**asked)[0]
    assert best["tp"] == 1
    fitting = [cp for cp in (1, 2, 4, 8) if answered(**asked, pins=["tp=1", f"cp={cp}"])["status"] == "optimal"]
    assert best["cp"] == min(fitting)


@reported("uc-121")
@pytest.mark.parametrize("framework", ["torchtitan", "megatron-core"])
def test_the_fewest_devices_can_be_asked_for(framework: str) -> None:
    question = {"model": "llama-3.1-70b", "cluster": "dgx-h100", "global_batch_size": 128, "framework": framework}
    fewest = plans_of(**question, devices=128, objective="fewest_devices")[0]["devices_used"]
    assert answered(**question, devices=fewest)["status"] == "optimal"
    assert answered(**question, devices=fewest - 8, min_used=0.01)["status"] == "infeasible"


@reported("uc-132")
def test_a_new_plan_keeps_batch_and_length() -> None:
    plans = [plan for devices in (32, 24, 16) for plan in plans_of(**(THIRTY_B | {"devices": devices}))]
    assert {(plan["global_batch_size"], plan["seq_len"]) for plan in plans} == {(256, 4096)}
    for plan in plans:
        assert plan["micro_batch_size"] * plan["num_microbatches"] * plan["dp"] == plan["global_batch_size"]
    assert len({(plan["tp"], plan["pp"], plan["ep"], plan["dp"]) for plan in plans}) > 1
