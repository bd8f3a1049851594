"""The JSON that programs read: its keys, its types, and that its numbers agree with each other."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any

import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.facts import Facts
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from planner.search.answer import answer_of, status_of
from planner.search.solve import Search
from tests.scenarios import scenario_of
from tests.searches import request_of

MTP = load_model("deepseek-v3").model_copy(update={"num_layers": 8})

QUESTIONS: dict[str, tuple[Scenario, tuple[str, ...]]] = {
    "dense": (scenario_of("llama-3.2-1b", "dgx-h100", 16, 16, 4096), ()),
    "pipeline": (scenario_of("llama-3.1-8b", "dgx-a100-40gb", 16, 32, 8192), ("pp=4", "vpp=2..")),
    "context": (scenario_of("llama-3.1-8b", "dgx-h100", 16, 16, 8192), ("cp=2", "pp=2")),
    "full-recompute": (scenario_of("llama-3.1-8b", "dgx-h100", 16, 16, 8192), ("recompute=full", "pp=2")),
    "selective": (scenario_of("llama-3.1-8b", "dgx-h100", 16, 16, 8192), ("recompute=selective",)),
    "experts": (scenario_of("qwen3-30b-a3b", "dgx-h100", 16, 2, 4096), ("ep=8",)),
    "mtp": (scenario_of(MTP, "h800-8x400g", 128, 128, 4096), ("pp=4", "tp=4")),
}
NAMES = list(QUESTIONS)

KEYS = {
    "status": str,
    "objective": str,
    "best": float,
    "bound": float,
    "gap": float,
    "proven_top_k": bool,
    "plans_within": int,
    "plans": list,
    "eliminated": dict,
    "search": dict,
}
PREDICTION_KEYS = {
    "step_time_s": float,
    "step_time_interval_s": list,
    "tokens_per_s_per_device": float,
    "mfu": float,
    "hfu": float,
    "time": dict,
    "memory": dict,
    "provenance": str,
}
PLAN_KEYS = {
    *("tp", "pp", "vpp", "cp", "cp_comm_type", "ep", "etp", "dp", "dp_replicate", "dp_shard", "zero_stage"),
    *("micro_batch_size", "num_microbatches", "global_batch_size", "seq_len", "devices_used", "schedule"),
    *("layers_per_stage", "layers_per_chunk", "recompute", "recomputed_layers_per_stage"),
    *("precision", "optimizer", "framework"),
}


def answer_to(scenario: Scenario, pins: tuple[str, ...] = (), **how: Any) -> dict[str, Any]:
    request = request_of(scenario, pins, **how)
    answer = answer_of(request, Facts.of(scenario), Search(request).run())
    # What programs get has been through JSON: no numpy numbers, no tuples, no NaN.
    text = json.dumps(answer, allow_nan=False)
    back: dict[str, Any] = json.loads(text)
    return back


@lru_cache(maxsize=16)
def answer_named(name: str) -> dict[str, Any]:
    scenario, pins = QUESTIONS[name]
    return answer_to(scenario, pins, top=8)


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_the_contract_is_there_with_its_type(name: str) -> None:
    answer = answer_named(name)
    for key, kind in KEYS.items():
        assert type(answer[key]) is kind, key
    assert answer["status"] == "optimal"
    assert answer["objective"] == "step_time"
    assert answer["infeasibility"] is None
    assert type(answer["search"]["elapsed_s"]) is float
    assert type(answer["search"]["plans_considered"]) is int
    assert type(answer["search"]["calibration"]) is str
    assert all(type(count) is int and count > 0 for count in answer["eliminated"].values())
    for rank, entry in enumerate(answer["plans"], start=1):
        assert set(entry) == {"rank", "id", "plan", "options", "prediction"}
        assert entry["rank"] == rank
        assert set(entry["plan"]) >= PLAN_KEYS
        for key, kind in PREDICTION_KEYS.items():
            assert type(entry["prediction"][key]) is kind, key
        assert entry["prediction"]["provenance"] in {"analytic", "calibrated", "measured"}


@pytest.mark.parametrize("name", NAMES)
def test_best_bound_and_gap_of_a_proven_answer(name: str) -> None:
    answer = answer_named(name)
    assert answer["best"] == answer["bound"] == answer["plans"][0]["prediction"]["step_time_s"]
    assert answer["gap"] == 0.0
    assert answer["proven_top_k"]
    assert answer["plans_within"] >= 1
    times = [entry["prediction"]["step_time_s"] for entry in answer["plans"]]
    assert times == sorted(times)
    assert len(times) == 8


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_of_the_time_sum_to_the_step(name: str) -> None:
    for entry in answer_named(name)["plans"]:
        prediction = entry["prediction"]
        assert math.fsum(prediction["time"].values()) == pytest.approx(prediction["step_time_s"], rel=1e-9)
        assert all(type(part) is float and part > 0.0 for part in prediction["time"].values()), prediction["time"]
        low, high = prediction["step_time_interval_s"]
        assert 0.0 < low < prediction["step_time_s"] < high


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_that_of_every_stage_and_the_peak_is_the_fullest(name: str) -> None:
    scenario, _ = QUESTIONS[name]
    for entry in answer_named(name)["plans"]:
        memory = entry["prediction"]["memory"]
        host = {"host_bytes_per_node", "host_memory_bytes_per_node"}
        told = {
            "peak_bytes",
            "peak_interval_bytes",
            "verdict",
            "reserved_bytes",
            "device_bytes",
            "usable_bytes",
            "stages",
        }
        assert set(memory) == told | host
        assert memory["reserved_bytes"] >= memory["peak_bytes"]
        assert memory["host_bytes_per_node"] == 0  # nothing is offloaded
        assert len(memory["stages"]) == entry["plan"]["pp"]
        totals = [sum(stage.values()) for stage in memory["stages"]]
        assert all(type(part) is int and part >= 0 for stage in memory["stages"] for part in stage.values())
        assert max(totals) == pytest.approx(memory["peak_bytes"], abs=len(memory["stages"][0]))
        assert memory["peak_bytes"] <= memory["usable_bytes"] == scenario.usable_bytes
        low, high = memory["peak_interval_bytes"]
        assert 0 < low < memory["peak_bytes"] < high
        beyond = high > memory["usable_bytes"] or memory["reserved_bytes"] > memory["device_bytes"]
        assert memory["verdict"] == ("at_risk" if beyond else "fits")


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_adds_up(name: str) -> None:
    scenario, _ = QUESTIONS[name]
    work, layers = scenario.workload, scenario.model.num_layers
    for entry in answer_named(name)["plans"]:
        plan = entry["plan"]
        assert plan["num_microbatches"] * plan["micro_batch_size"] * plan["dp"] == work.global_batch_size
        assert plan["global_batch_size"] == work.global_batch_size
        assert plan["seq_len"] == work.seq_len
        assert plan["devices_used"] == plan["tp"] * plan["cp"] * plan["pp"] * plan["dp"] <= scenario.devices
        assert plan["dp_replicate"] * plan["dp_shard"] == plan["dp"]
        assert len(plan["layers_per_stage"]) == plan["pp"]
        assert sum(plan["layers_per_stage"]) == layers
        if plan["vpp"] > 1:
            assert [sum(chunks) for chunks in plan["layers_per_chunk"]] == plan["layers_per_stage"]
            assert {len(chunks) for chunks in plan["layers_per_chunk"]} == {plan["vpp"]}
            assert plan["schedule"] == "interleaved_1f1b"
        else:
            assert plan["layers_per_chunk"] is None
            assert plan["schedule"] == "1f1b"
        again = plan["layers_per_stage"] if plan["recompute"] == "full" else [0] * plan["pp"]
        assert plan["recomputed_layers_per_stage"] == again
        assert bool(plan["recompute_modules"]) == (plan["recompute"] == "selective")
        assert (plan["precision"], plan["optimizer"]) == (work.precision.name, work.optimizer.name)
        assert (plan["framework"], plan["framework_version"]) == ("megatron-core", scenario.framework.version)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_survives_the_way_to_a_file_and_back(name: str) -> None:
    for entry in answer_named(name)["plans"]:
        plan = Plan.model_validate_json(json.dumps(entry["plan"]))
        assert plan.model_dump(mode="json") == entry["plan"]


@pytest.mark.parametrize("name", NAMES)
def test_rates_follow_from_the_step_time(name: str) -> None:
    scenario, _ = QUESTIONS[name]
    peak = scenario.cluster.accelerator.peak_flops_per_s["bf16"]
    for entry in answer_named(name)["plans"]:
        plan, prediction = entry["plan"], entry["prediction"]
        rate = scenario.workload.tokens_per_step / prediction["step_time_s"] / plan["devices_used"]
        assert prediction["tokens_per_s_per_device"] == pytest.approx(rate, rel=1e-12)
        assert 0.0 < prediction["mfu"] <= prediction["hfu"] < 1.0
        # Norms and activations that run again are no products.
        products = {"core_attn", "mlp", "moe", "mla_up_proj"} & set(plan["recompute_modules"])
        assert (prediction["hfu"] > prediction["mfu"]) == (plan["recompute"] == "full" or bool(products))
        # Six FLOPs per active parameter and token are most of what is useful (8,192 tokens add some for attention).
        useful = prediction["mfu"] * peak / rate
        assert 4.0 < useful / scenario.model.params.active < 12.0


def test_selective_names_only_modules_that_the_model_has() -> None:
    dense = {module for e in answer_named("selective")["plans"] for module in e["plan"]["recompute_modules"]}
    assert dense == {"layernorm"}
    latent = answer_to(scenario_of(MTP, "h800-8x400g", 128, 128, 4096), ("recompute=selective", "pp=2", "tp=8"), top=1)
    assert latent["plans"][0]["plan"]["recompute_modules"] == ["layernorm", "moe_act", "mla_up_proj"]


def test_cost_and_fewest_devices_are_reported_in_their_own_unit() -> None:
    scenario, _ = QUESTIONS["dense"]
    cost = answer_to(scenario, objective="cost", price_per_device_hour=2.0, top=3)
    first = cost["plans"][0]
    price = 2.0 * first["plan"]["devices_used"] * first["prediction"]["step_time_s"] / 3600
    assert cost["best"] == pytest.approx(price, rel=1e-12)
    fewest = answer_to(scenario, objective="fewest_devices", top=3)
    assert fewest["best"] == fewest["bound"] == fewest["plans"][0]["plan"]["devices_used"] == 8
    assert fewest["gap"] == 0.0
    assert (cost["objective"], fewest["objective"]) == ("cost", "fewest_devices")


def test_an_infeasible_answer_has_reasons_and_no_numbers_of_a_best() -> None:
    answer = answer_to(scenario_of("llama-3.1-70b", "dgx-a100-80gb", 16, 64, 4096))
    assert answer["status"] == "infeasible"
    assert (answer["best"], answer["bound"], answer["gap"], answer["plans"]) == (None, None, None, [])
    assert not answer["proven_top_k"]
    assert answer["plans_within"] == 0
    assert set(answer["infeasibility"]) == {"conflict", "minimal", "relaxations"}
    assert answer["infeasibility"]["minimal"]
    (conflict,) = answer["infeasibility"]["conflict"]
    assert conflict["rule"] == "memory"
    assert conflict["meshes"] == answer["eliminated"]["memory"]
    assert any(sign.isdigit() for sign in conflict["reason"])


def test_an_answer_that_was_cut_short_still_is_an_answer() -> None:
    answer = answer_to(scenario_of("llama-3.1-405b", "dgx-h100", 16384, 2048, 8192), max_seconds=0.001)
    assert answer["status"] in {"feasible", "unknown"}
    assert not answer["proven_top_k"]
    assert answer["bound"] > 0.0
    if answer["status"] == "feasible":
        assert answer["gap"] == pytest.approx((answer["best"] - answer["bound"]) / answer["best"])
        assert 0.0 < answer["gap"] < 1.0
    else:
        assert answer["best"] is answer["gap"] is None


def test_a_sequence_beyond_the_models_positions_is_answered_with_a_warning() -> None:
    long = answer_to(scenario_of("llama-3-8b", "dgx-h100", 16, 16, 16384), top=1)
    assert long["status"] == "optimal"
    assert any("16384" in warning and "8192" in warning for warning in long["warnings"])
    assert answer_named("dense")["warnings"] == []


def test_the_status_says_what_is_proven() -> None:
    scenario, pins = QUESTIONS["dense"]
    request = request_of(scenario, pins)
    outcome = Search(request).run()
    assert status_of(outcome) == "optimal"
    outcome.proven, outcome.best_proven = False, True
    assert status_of(outcome) == "optimal"
    outcome.best_proven = False
    assert status_of(outcome) == "feasible"
    outcome.best = []
    assert status_of(outcome) == "unknown"
    outcome.proven = True
    assert status_of(outcome) == "infeasible"
