"""The decision procedure on textbook cases, and where the search disagrees with it."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.checker import check_plan
from costmodel.facts import Facts
from costmodel.scenario import Scenario
from costmodel.spec.options import OFFLOADS
from costmodel.spec.plan import RECOMPUTES, Plan
from costmodel.table import PlanTable
from planner.check.price import price
from planner.explain.differences import axis_differences, in_words, time_differences
from planner.explain.disagreements import disagreements
from planner.explain.explanation import answered, explanation_of
from planner.explain.procedure import EXPOSED_SHARE, LONG_SEQUENCE
from planner.explain.step import QUESTIONS
from planner.search.allowed import allowed_options
from planner.search.answer import predictions
from planner.search.objective import objective_of
from tests.scenarios import plan_row, scenario_of
from tests.searches import request_of

CASES: dict[str, Scenario] = {
    "8b": scenario_of("llama-3.1-8b", "dgx-h100", 8, 64, 8192),
    "70b": scenario_of("llama-3.1-70b", "dgx-h100", 64, 512, 8192),
    "61-nodes": scenario_of("llama-3.1-70b", "dgx-h100", 488, 976, 8192),
    "405b": scenario_of("llama-3.1-405b", "dgx-h100", 16384, 2048, 8192),
    "405b-long": scenario_of("llama-3.1-405b", "dgx-h100", 16384, 128, 131072),
    "mixtral": scenario_of("mixtral-8x22b", "dgx-h100", 128, 512, 4096),
    "deepseek": scenario_of("deepseek-v3", "h800-8x400g", 2048, 15360, 4096),
    "gpt2": scenario_of("gpt2", "h100-1", 1, 32, 1024),
    "too-big": scenario_of("llama-3.1-70b", "dgx-a100-80gb", 16, 64, 4096),
}
FITTING = [name for name in CASES if name != "too-big"]


@lru_cache(maxsize=32)
def answer_to(name: str, *pins: str) -> dict[str, Any]:
    """As programs get it."""
    request = request_of(CASES[name], pins, explain=True, top=2)
    found: dict[str, Any] = json.loads(json.dumps(answered(request), allow_nan=False))
    return found


def explanation(name: str, *pins: str) -> dict[str, Any]:
    found: dict[str, Any] = answer_to(name, *pins)["explanation"]
    return found


def step(name: str, slug: str, *pins: str) -> dict[str, Any]:
    return next(step for step in explanation(name, *pins)["steps"] if step["slug"] == slug)


def verdicts(name: str, *pins: str) -> dict[str, str]:
    return {step["slug"]: step["verdict"] for step in explanation(name, *pins)["steps"]}


@pytest.mark.parametrize("name", CASES)
def test_all_six_steps_are_walked_in_the_primers_order(name: str) -> None:
    steps = explanation(name)["steps"]
    assert [(step["number"], step["slug"], step["question"]) for step in steps] == [
        (number, slug, question) for number, (slug, question) in enumerate(QUESTIONS, start=1)
    ]
    assert all(step["told"].endswith(".") for step in steps)
    assert all(re.match(r"[A-Z0-9]|(tp|cp|pp|dp|ep|etp) \d", step["told"]) for step in steps)


def test_8b_on_one_node_is_sharded_and_nothing_else() -> None:
    found = verdicts("8b")
    assert (found["one_replica"], found["shard_state"]) == ("no", "sharded")
    assert (found["tensor_parallel"], found["pipeline"], found["context_and_experts"]) == ("not_needed",) * 3
    plan = explanation("8b")["procedure_plan"]["plan"]
    assert (plan["tp"], plan["pp"], plan["cp"], plan["dp"]) == (1, 1, 1, 8)


def test_the_first_step_counts_18_bytes_a_parameter() -> None:
    """Megatron-Core's bf16 recipe: 2 for the parameter, 4 for its gradient, 12 for AdamW with a master copy."""
    numbers = step("8b", "one_replica")["numbers"]
    assert numbers["state_bytes"] == pytest.approx(18 * CASES["8b"].model.params.total, rel=0.01)
    assert numbers["needed_bytes"] > numbers["least_bytes"] > numbers["state_bytes"] > numbers["usable_bytes"]


def test_a_small_model_fits_on_one_device_and_needs_nothing() -> None:
    found = verdicts("gpt2")
    assert (found["one_replica"], found["shard_state"], found["tensor_parallel"]) == ("yes", "replicas", "not_needed")


@pytest.mark.parametrize("name", ["405b", "405b-long"])
def test_a_batch_too_small_for_data_parallelism_alone_leads_to_a_whole_node_of_tp_and_to_stages(name: str) -> None:
    found = verdicts(name)
    assert (found["shard_state"], found["tensor_parallel"], found["pipeline"]) == ("no_plan", "added", "added")
    assert str(CASES[name].workload.global_batch_size) in step(name, "shard_state")["told"]
    plan = explanation(name)["procedure_plan"]["plan"]
    assert plan["tp"] == 8
    assert plan["pp"] > 1


def test_context_parallelism_is_for_long_sequences() -> None:
    assert CASES["405b-long"].workload.seq_len >= LONG_SEQUENCE > CASES["405b"].workload.seq_len
    assert step("405b-long", "context_and_experts")["numbers"]["cp"] > 1
    assert step("405b", "context_and_experts")["numbers"]["cp"] == 1


def test_experts_are_spread_and_make_stages_needless() -> None:
    found = step("deepseek", "context_and_experts")
    assert found["verdict"] == "added"
    assert found["numbers"]["ep"] > 1
    assert found["numbers"]["pp"] < step("deepseek", "pipeline")["numbers"]["pp"]


@pytest.mark.parametrize("name", FITTING)
def test_communication_counts_as_exposed_by_the_stated_limit(name: str) -> None:
    for found in explanation(name)["steps"]:
        numbers = found["numbers"]
        if "dp_exposed_share" in numbers:
            assert numbers["dp_exposed_limit"] == EXPOSED_SHARE
            assert numbers["dp_exposed_share"] == pytest.approx(
                numbers.get("dp_comm_s", 0.0) / numbers["step_time_s"], rel=1e-9
            )
        if found["verdict"] in ("sharded", "hsdp", "replicas"):
            assert numbers["dp_exposed_share"] <= EXPOSED_SHARE
        if found["verdict"] == "exposed":
            assert numbers["dp_exposed_share"] > EXPOSED_SHARE


@pytest.mark.parametrize("name", FITTING)
def test_the_procedures_plan_is_legal_fits_and_has_the_price_of_check(name: str) -> None:
    scenario, found = CASES[name], explanation(name)["procedure_plan"]
    plan = Plan.model_validate_json(json.dumps(found["plan"]))
    assert list(check_plan(plan, scenario)) == []
    assert found["prediction"]["memory"]["peak_bytes"] <= scenario.usable_bytes
    priced = price(scenario, plan).prediction
    assert priced is not None
    assert priced["step_time_s"] == pytest.approx(found["prediction"]["step_time_s"], rel=1e-9)
    tuned = step(name, "tune")["numbers"]
    assert tuned["step_time_s"] == pytest.approx(found["prediction"]["step_time_s"], rel=1e-9)
    assert tuned["step_time_s"] <= tuned["before_step_time_s"] * (1 + 1e-9)


@pytest.mark.parametrize("name", FITTING)
def test_the_search_is_never_slower_and_its_disagreements_sum_to_the_difference(name: str) -> None:
    found, best = explanation(name), answer_to(name)["plans"][0]
    difference = found["difference"]["step_time_s"]
    own = found["procedure_plan"]["prediction"]["step_time_s"]
    assert difference <= own * 1e-9
    assert own + difference == pytest.approx(best["prediction"]["step_time_s"], rel=1e-9)
    parts = found["disagreements"]
    assert sum(part["step_time_s"] for part in parts) == pytest.approx(difference, rel=1e-6, abs=1e-9)
    assert sum(part["memory_bytes"] for part in parts) == found["difference"]["memory_bytes"]
    assert bool(parts) == (found["procedure_plan"]["plan"] != best["plan"])
    if parts:
        assert parts[-1]["fits"]
        named = {axis["axis"]: axis["search"] for part in parts for axis in part["axes"]}
        assert {axis: best["plan"][axis] for axis in named} == named


def test_70b_on_64_is_fsdp_by_hand_and_the_search_says_what_is_better() -> None:
    found = explanation("70b")
    plan = found["procedure_plan"]["plan"]
    assert (plan["tp"], plan["pp"], plan["zero_stage"], plan["recompute"]) == (1, 1, 3, "full")
    told = " ".join(part["told"] for part in found["disagreements"])
    assert "recompute" in told
    assert "less" in told


def test_where_nothing_fits_the_steps_say_which_one_fails() -> None:
    found = explanation("too-big")
    assert answer_to("too-big")["status"] == "infeasible"
    assert verdicts("too-big")["one_replica"] == "no"
    assert verdicts("too-big")["tune"] == "does_not_fit"
    numbers = step("too-big", "tune")["numbers"]
    assert numbers["least_bytes"] > numbers["usable_bytes"]
    assert (found["procedure_plan"], found["disagreements"], found["difference"]) == (None, [], None)


# -- memory of the hosts ---------------------------------------------------------------------------------------------

DEEPSPEED = load_framework("deepspeed")
CASES_OF_HOSTS: dict[str, Scenario] = {
    name: scenario.model_copy(update={"framework": DEEPSPEED})
    for name, scenario in {
        "405b-16": scenario_of("llama-3.1-405b", "dgx-h100", 16, 64, 8192),
        "70b-16": scenario_of("llama-3.1-70b", "dgx-h100", 16, 64, 8192),
    }.items()
}


@lru_cache(maxsize=8)
def explained(name: str, *pins: str, allow: bool = False) -> dict[str, Any]:
    scenario = CASES_OF_HOSTS[name]
    also = allowed_options(scenario.framework, ["offload"]) if allow else ()
    found: dict[str, Any] = answered(request_of(scenario, pins, explain=True, top=1, also=also))["explanation"]
    return found


@pytest.mark.parametrize(("pins", "allow"), [(("offload=parameters",), False), ((), True)])
def test_a_plan_that_the_hosts_can_not_hold_does_not_fit_by_hand_either(pins: tuple[str, ...], allow: bool) -> None:
    found = explained("405b-16", *pins, allow=allow)
    steps = {step["slug"]: step for step in found["steps"]}
    for slug in ("shard_state", "pipeline", "tune"):
        assert steps[slug]["verdict"] == "does_not_fit"
        assert " of 2048.0 GiB of host memory per node" in steps[slug]["told"]
        numbers = steps[slug]["numbers"]
        assert numbers["host_bytes_per_node"] > numbers["host_memory_bytes_per_node"] == 2048 * 2**30
    assert steps["tune"]["told"].startswith("Nothing on this mesh fits into the memory of the hosts")
    assert found["procedure_plan"] is None


def test_what_an_offload_leaves_of_one_replica_on_its_device_is_told() -> None:
    """Once the optimizer and its gradients live with the host, a device has 2 of the 18 bytes of a parameter."""
    (first, *_) = explained("70b-16", "offload=optimizer")["steps"]
    numbers = first["numbers"]
    assert numbers["offload"] == "optimizer"
    assert numbers["state_left_bytes"] == pytest.approx(numbers["state_bytes"] / 9, rel=0.01)
    assert numbers["host_bytes_per_node"] == pytest.approx(numbers["state_bytes"] * 8 / 9, rel=0.01)
    assert numbers["needed_bytes"] == numbers["state_left_bytes"] + numbers["activation_bytes"]
    left, there = numbers["state_left_bytes"] / 2**30, numbers["host_bytes_per_node"] / 2**30
    assert f", {left:.1f} GiB of it left on the device with offload optimizer ({there:.1f} of 2048.0" in first["told"]


def test_what_an_offload_would_leave_is_told_where_it_may_be_used() -> None:
    (first, *_) = explained("405b-16", allow=True)["steps"]
    assert "it does not fit; offload parameters would leave " in first["told"]
    assert "offload" not in first["numbers"]
    assert first["numbers"]["state_bytes"] == pytest.approx(18 * CASES_OF_HOSTS["405b-16"].model.params.total, rel=0.01)


def test_an_offload_of_parameters_that_leaves_room_for_a_replica_is_sharded_as_the_framework_asks() -> None:
    scenario = scenario_of("llama-3.1-8b", "dgx-h100", 8, 64, 4096).model_copy(update={"framework": DEEPSPEED})
    found = answered(request_of(scenario, ("offload=parameters",), explain=True, top=1))["explanation"]
    assert found["steps"][0]["verdict"] in ("yes", "with_recompute")
    assert found["steps"][1]["numbers"]["zero_stage"] == 3
    assert found["procedure_plan"]["plan"]["offload"] == "parameters"


@pytest.mark.parametrize(
    ("room", "end", "short"),
    [(0.5, " (too big for the hosts until what follows)", ["host"]), (1.0, "", [])],
)
def test_a_change_that_the_hosts_have_no_room_for_says_so(room: float, end: str, short: list[str]) -> None:
    scenario = CASES_OF_HOSTS["70b-16"]
    facts = Facts.of(scenario)
    ours = plan_row(64, dp=16, zero_stage=3, recompute=RECOMPUTES.index("full"))
    theirs = ours | {"offload": OFFLOADS.index("optimizer")}
    (priced,) = predictions(scenario, facts, PlanTable.of_rows([theirs]))
    held = priced["memory"]["host_bytes_per_node"]
    cluster = scenario.cluster.model_copy(update={"host_memory_bytes_per_node": int(room * held) + 1})
    smaller = scenario.model_copy(update={"cluster": cluster})
    objective = objective_of(request_of(smaller))
    (part,) = disagreements(smaller, Facts.of(smaller), objective, ours, theirs)
    assert (part["fits"], part["short_of"], part["host_bytes_per_node"]) == (not short, short, held)
    assert part["told"].endswith(f"{held / 2**30:.1f} GiB more host memory per node{end}")


# -- other objectives than time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["fewest_devices", "cost"])
def test_both_plans_are_compared_by_what_is_minimised(objective: str) -> None:
    scenario = scenario_of("llama-3.1-8b", "dgx-h100", 32, 16, 8192)
    how = {"min_used": 0.25, "price_per_device_hour": 2.0} if objective == "cost" else {}
    answer = answered(request_of(scenario, explain=True, top=1, objective=objective, **how))
    found, best = answer["explanation"], answer["plans"][0]
    own, difference = found["procedure_plan"], found["difference"]
    assert found["objective"] == objective

    def value(entry: dict[str, Any]) -> float:
        devices = float(entry["plan"]["devices_used"])
        return devices * 2.0 * float(entry["prediction"]["step_time_s"]) / 3600 if objective == "cost" else devices

    assert own["value"] == pytest.approx(value(own), rel=1e-9)
    assert own["value"] + difference["value"] == pytest.approx(answer["best"], rel=1e-9)
    assert answer["best"] == pytest.approx(value(best), rel=1e-9)
    # The steps go for time: what the search saves of its own objective it may pay for in seconds.
    assert difference["value"] < 0 < difference["step_time_s"]
    parts = found["disagreements"]
    assert sum(part["value"] for part in parts) == pytest.approx(difference["value"], rel=1e-6, abs=1e-12)
    assert parts[0]["axes"] == [{"axis": "dp", "procedure": own["plan"]["dp"], "search": 8}]
    saved = (
        f"{own['plan']['devices_used'] - 8} devices fewer, " if objective == "fewest_devices" else " a step in cost, "
    )
    assert saved in parts[0]["told"]


def test_seconds_are_the_value_where_time_is_minimised() -> None:
    found = explanation("70b")
    assert found["objective"] == "step_time"
    assert found["procedure_plan"]["value"] == found["procedure_plan"]["prediction"]["step_time_s"]
    assert found["difference"]["value"] == found["difference"]["step_time_s"]
    assert [part["value"] for part in found["disagreements"]] == [
        part["step_time_s"] for part in found["disagreements"]
    ]


def test_pins_hold_and_are_said() -> None:
    assert "tp is pinned: --pin tp=4." in step("8b", "tensor_parallel", "tp=4", "pp=2")["told"]
    assert "pp is pinned: --pin pp=2." in step("8b", "pipeline", "tp=4", "pp=2")["told"]
    plan = explanation("8b", "tp=4", "pp=2")["procedure_plan"]["plan"]
    assert (plan["tp"], plan["pp"]) == (4, 2)


def test_a_framework_without_tensor_parallelism_and_pipelines_says_so() -> None:
    framework = load_framework("pytorch-fsdp")
    assert framework.schedules == ()
    scenario = CASES["too-big"].model_copy(update={"framework": framework})
    found = answered(request_of(scenario, explain=True))["explanation"]
    told = {step["slug"]: step["verdict"] for step in found["steps"]}
    assert told["pipeline"] == "not_offered"
    assert framework.tensor_parallel or told["tensor_parallel"] == "not_offered"


def test_steps_that_the_deadline_leaves_no_time_for_are_listed() -> None:
    request = request_of(CASES["8b"], explain=True)
    calls = iter([False, False, True])
    found = explanation_of(request, {"plans": []}, lambda: next(calls, True))
    assert [step["verdict"] for step in found["steps"][2:]] == ["not_reached"] * 4
    assert found["steps"][1]["verdict"] == "sharded"
    assert found["procedure_plan"] is None


def test_an_answer_without_the_question_has_no_explanation() -> None:
    assert "explanation" not in answered(request_of(CASES["gpt2"]))


def test_differences_in_words() -> None:
    first, second = (answer_to("8b")["plans"][place] for place in (0, 1))
    axes = axis_differences(first["plan"], second["plan"])
    assert axes
    assert axis_differences(first["plan"], first["plan"]) == []
    time = time_differences(first["prediction"], second["prediction"])
    assert list(time.values()) == sorted(time.values(), key=abs, reverse=True)
    axes = [{"axis": "pp", "ours": 4, "theirs": 8}, {"axis": "zero_stage", "ours": 1, "theirs": 0}]
    assert in_words(axes, {"dp_comm": -1.2, "bubble": 0.04}, 3 * 2**30) == (
        "pp 8 instead of 4, ZeRO 0 instead of 1: 1.20 s less dp_comm, 40.0 ms more bubble, 3.0 GiB more memory"
    )
    assert in_words([], {}, 0) == "other layers on the stages, or others that run again: about the same time and memory"
