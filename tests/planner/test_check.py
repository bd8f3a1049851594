"""Judging plans: those of ``suggest`` come back as they went, those of people are completed, judged and priced."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.framework_catalog import framework_names
from costmodel.catalog.model_catalog import load_model
from costmodel.errors import InvalidInput, Missing
from costmodel.facts import Facts
from costmodel.plan_rows import plan_of
from costmodel.spec.options import OPTION_NAMES
from costmodel.spec.plan import Plan
from costmodel.spec.plan_draft import PlanDraft
from costmodel.stages import Layout
from costmodel.table import PlanTable
from planner.question import Question
from planner.search.answer import predictions
from tests.checks import SCENARIO, checked, slugs, write_plan
from tests.scenarios import padded_vocab, plan_row, scenario_of
from tests.searches import suggest

CAPACITY = load_cluster("dgx-h100").accelerator.memory_bytes

CASES: dict[str, dict[str, Any]] = {
    "dense": {},
    "virtual stages": {"pins": ["pp=4", "vpp=2,4"]},
    "older version": {"framework_version": "0.13", "pins": ["pp=2..8"]},
    "full recompute": {"pins": ["recompute=full", "tp=2"], "seq_len": 32768},
    "replicated shards": {"pins": ["dp_replicate=2"]},
    "context parallel": {"pins": ["cp=2,4"], "seq_len": 16384},
    "experts": {"model": "mixtral-8x7b", "devices": 64, "pins": ["ep=4,8"]},
    "mixed layers": {"model": "deepseek-v2-lite", "pins": ["pp=2,3"]},
    "other recipes": {"precision": "fp8", "optimizer": "muon"},
}


def same(found: Any, wanted: Any) -> bool:
    """Equal up to rounding, however nested."""
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict) and found.keys() == wanted.keys() and all(same(found[k], wanted[k]) for k in found)
        )
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == pytest.approx(wanted, rel=1e-9)) if isinstance(wanted, float) else bool(found == wanted)


@pytest.mark.parametrize("case", CASES)
def test_plans_of_suggest_fit_and_cost_the_same(tmp_path: Path, case: str) -> None:
    asked = {**SCENARIO, **CASES[case]}
    answer = suggest(Question(top=3, **asked))
    assert len(answer["plans"]) == 3
    for entry in answer["plans"]:
        found = checked(tmp_path, entry["plan"], **CASES[case])
        assert found["status"] in ("fits", "at_risk"), found["violations"]
        assert (found["derived"], found["violations"], found["nearest"]) == ([], [], None)
        assert found["plan"] == entry["plan"]
        assert same(found["prediction"], entry["prediction"])


@pytest.mark.parametrize("framework", framework_names())
def test_plans_of_every_framework_come_back_as_they_went(tmp_path: Path, framework: str) -> None:
    for entry in suggest(Question(top=3, framework=framework, **SCENARIO))["plans"]:
        found = checked(tmp_path, entry["plan"])
        assert found["status"] in ("fits", "at_risk"), found["violations"]
        assert (found["derived"], found["violations"]) == ([], [])
        assert found["plan"] == entry["plan"]
        assert same(found["prediction"], entry["prediction"])


def test_names_are_those_of_the_catalog_however_they_are_written(tmp_path: Path) -> None:
    plan = {"tp": 2, "framework": "Megatron-LM", "framework_version": "0.15", "precision": "BF16", "optimizer": "AdamW"}
    found = checked(tmp_path, plan, framework="megatron")
    assert found["violations"] == []
    written = {name: found["plan"][name] for name in ("framework", "framework_version", "precision", "optimizer")}
    assert written == {
        "framework": "megatron-core",
        "framework_version": "0.15",
        "precision": "bf16",
        "optimizer": "adamw",
    }


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v2-lite"])
@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(("pp", "vpp"), [(4, 1), (4, 2), (2, 4)])
def test_every_layout_is_priced_as_the_search_prices_it(
    tmp_path: Path, model: str, layout: Layout, pp: int, vpp: int
) -> None:
    scenario = scenario_of(model, devices=16, global_batch_size=64, seq_len=4096)
    row = plan_row(64, tp=2, pp=pp, vpp=vpp, dp=8 // pp, layout=int(layout))
    found = checked(tmp_path, plan_of(scenario, row).model_dump(mode="json"), model=model)
    (wanted,) = predictions(scenario, Facts.of(scenario), PlanTable.of_rows([row]))
    assert found["violations"] == []
    assert same(found["prediction"], wanted)


def test_whole_answers_and_their_entries_are_read_too(tmp_path: Path) -> None:
    answer = suggest(Question(top=2, **SCENARIO))
    first = answer["plans"][0]
    for document, named in ((answer, "plans[0] of 2"), (first, "under 'plan'"), (first["plan"], None)):
        found = checked(tmp_path, document)
        assert found["plan"] == first["plan"]
        assert [warning for warning in found["warnings"] if "of the file" in warning] == (
            [f"of the file, {named if 'plans' in named else 'the object ' + named} is checked"] if named else []
        )


def test_a_hand_written_plan_is_completed_and_every_step_is_told(tmp_path: Path) -> None:
    found = checked(tmp_path, {"tp": 2, "pp": 4})
    plan = found["plan"]
    assert found["status"] == "fits"
    assert Plan.model_validate(plan).dp == 2
    wanted = {"cp": 1, "vpp": 1, "dp": 2, "zero_stage": 1, "dp_shard": 2, "dp_replicate": 1, "num_microbatches": 32}
    wanted |= {"schedule": "1f1b", "sequence_parallel": True, "recompute": "none", "devices_used": 16}
    assert {axis: plan[axis] for axis in wanted} == wanted
    assert plan["layers_per_stage"] == [8, 8, 8, 8]
    told = {entry["field"] for entry in found["derived"]}
    # What is only there when another field asks for it has nothing to tell.
    silent = {"tp", "pp", "layers_per_chunk", "recompute_modules", *OPTION_NAMES}
    assert told == set(PlanDraft.model_fields) - silent
    assert all(entry["why"] for entry in found["derived"])


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"layers_per_stage": [8, 8, 8, 8]}, {"pp": 4, "dp": 4}),
        ({"layers_per_chunk": [[4, 4]] * 4}, {"pp": 4, "vpp": 2, "schedule": "interleaved_1f1b"}),
        ({"pp": 4, "vpp": 2, "layers_per_stage": [8] * 4}, {"layers_per_chunk": [[4, 4]] * 4}),
        ({"pp": 4, "schedule": "interleaved_1f1b"}, {"vpp": 2, "layers_per_stage": [8] * 4}),
        ({"tp": 4, "num_microbatches": 8}, {"dp": 4, "micro_batch_size": 2}),
        ({"dp_replicate": 2, "dp_shard": 4, "tp": 2}, {"dp": 8, "zero_stage": 1}),
        ({"tp": 2, "dp_replicate": 4}, {"dp": 8, "dp_shard": 2}),
        ({"tp": 8, "pp": 2}, {"dp": 1, "zero_stage": 0, "dp_shard": 1}),
        ({"tp": 4, "zero_stage": 0}, {"dp_shard": 1, "dp_replicate": 4}),
        ({"tp": 4, "recompute": "full"}, {"recomputed_layers_per_stage": [32]}),
        ({"tp": 4, "recompute_modules": ["layernorm"]}, {"recompute": "selective"}),
        ({"pp": 2, "recomputed_layers_per_stage": [3, 0]}, {"recompute": "full"}),
        ({"tp": 4, "precision": "BF16"}, {"precision": "bf16"}),
    ],
)
def test_missing_fields_follow_from_those_given(tmp_path: Path, given: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = checked(tmp_path, given)
    assert {axis: found["plan"][axis] for axis in wanted} == wanted
    assert found["violations"] == []


def test_the_plan_speaks_for_the_scenario_where_flags_do_not(tmp_path: Path) -> None:
    plan = {"tp": 4, "dp": 4, "micro_batch_size": 2, "num_microbatches": 4, "seq_len": 2048, "optimizer": "muon"}
    found = checked(tmp_path, plan, devices=None, global_batch_size=None, seq_len=None)
    assert (found["plan"]["global_batch_size"], found["plan"]["devices_used"]) == (32, 16)
    assert found["plan"]["optimizer"] == "muon"
    assert found["violations"] == []
    for missing, text in (
        ({"seq_len"}, "seq-len: nothing is given; give --seq-len, or seq_len in the plan"),
        ({"num_microbatches"}, "global-batch-size: nothing is given"),
        ({"dp", "seq_len"}, "devices: nothing is given; give --devices.*also needed: --global-batch-size, --seq-len"),
    ):
        less = {name: value for name, value in plan.items() if name not in missing}
        with pytest.raises(Missing, match=text):
            checked(tmp_path, less, devices=None, global_batch_size=None, seq_len=None)


def test_a_plan_is_judged_under_its_own_version_unless_a_flag_names_one(tmp_path: Path) -> None:
    # Llama 3.1 has 8 KV heads; versions up to 0.15 can't replicate them.
    plan = {"tp": 16, "framework_version": "0.15"}
    assert slugs(checked(tmp_path, plan)) == {"kv_heads_divisible_by_tp"}
    newer = checked(tmp_path, plan, framework_version="0.16")
    assert slugs(newer) == set()
    assert any("framework_version 0.15 and is checked under 0.16" in warning for warning in newer["warnings"])


def test_layers_of_ones_own_are_judged_and_priced(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 92,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
        "max_position_embeddings": 8192,
    }
    model = write_plan(tmp_path, config, "config.json")
    lighter_ends = [10, 12, 12, 12, 12, 12, 12, 10]
    for layers, version, broken in (
        (lighter_ends, "0.16", set()),
        (lighter_ends, "0.9", set()),
        ([11, 12, 12, 12, 12, 12, 12, 9], "0.9", set()),
        ([10, 13, 11, 12, 12, 12, 12, 10], "0.16", set()),
        ([10, 13, 11, 12, 12, 12, 12, 10], "0.12", {"layers_expressible"}),
        ([10, 12, 12, 12, 12, 12, 12, 12], "0.16", {"layers_add_up"}),
    ):
        plan = {"tp": 8, "pp": 8, "layers_per_stage": layers, "framework_version": version}
        found = checked(tmp_path, plan, model=model, devices=64)
        assert slugs(found) == broken
    plan = {"tp": 8, "pp": 8, "layers_per_stage": lighter_ends}
    stages = checked(tmp_path, plan, model=model, devices=64)["memory"]["stages"]
    # 12 layers on the second stage, 10 on the first with an embedding of its own; 8 and 7 micro-batches alive.
    first, second = stages[0]["terms"], stages[1]["terms"]
    assert first["activations"] / second["activations"] == pytest.approx(10 * 8 / (12 * 7), rel=1e-6)
    layer = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) / 8
    table = 2 * padded_vocab(load_model(model), 8) * 4096 / 8
    assert second["parameters"] == pytest.approx(12 * layer, rel=1e-3)
    assert first["parameters"] == pytest.approx(10 * layer + table, rel=1e-3)


def test_recomputing_some_layers_lies_between_none_and_all(tmp_path: Path) -> None:
    plan = {"tp": 2, "pp": 4, "layers_per_stage": [8] * 4, "recompute": "full"}
    none = checked(tmp_path, {**plan, "recompute": "none"})["prediction"]
    full = checked(tmp_path, plan)["prediction"]
    zero = checked(tmp_path, {**plan, "recomputed_layers_per_stage": [0] * 4})["prediction"]
    assert same(zero["time"], none["time"])
    assert same(zero["memory"], none["memory"])
    half = checked(tmp_path, {**plan, "recomputed_layers_per_stage": [4] * 4})["prediction"]
    for part in ("recompute", "bubble"):
        middle = (none["time"].get(part, 0.0) + full["time"][part]) / 2
        assert half["time"][part] == pytest.approx(middle, rel=1e-6)
    for least, some, most in zip(
        full["memory"]["stages"], half["memory"]["stages"], none["memory"]["stages"], strict=True
    ):
        assert some["activations"] == pytest.approx((least["activations"] + most["activations"]) / 2, rel=1e-6)
        assert some["recompute_workspace"] == least["recompute_workspace"]
    assert half["hfu"] - half["mfu"] == pytest.approx(
        (full["hfu"] - full["mfu"]) / 2 * full["step_time_s"] / half["step_time_s"], rel=1e-6
    )
    one = checked(tmp_path, {**plan, "recomputed_layers_per_stage": [0, 0, 8, 0]})["prediction"]
    assert none["step_time_s"] < one["step_time_s"] <= full["step_time_s"]
    assert sum(one["time"].values()) == pytest.approx(one["step_time_s"], rel=1e-12)


def test_what_has_no_price_says_so(tmp_path: Path) -> None:
    """An offload where nobody knows how fast the hosts are reached: the framework runs it, so it gets bounds."""
    known = Path(find_spec("costmodel.catalog").submodule_search_locations[0]) / "clusters" / "dgx-h100.yaml"
    lines = [line for line in known.read_text("utf-8").splitlines() if not line.startswith("host_bandwidth")]
    (tmp_path / "cluster.yaml").write_text("\n".join(lines), encoding="utf-8")
    plan, how = {"tp": 2, "pp": 4, "offload": "optimizer"}, {"cluster": str(tmp_path / "cluster.yaml")}
    found = checked(tmp_path, plan, **how)
    assert (found["priced"], found["prediction"]) == (False, None)
    assert found["bounds"]["because"] == ["offload optimizer on a cluster whose host link is unknown"]
    assert [entry["rule"] for entry in found["policy"]] == ["offload_needs_host_link"]
    assert found["bounds"]["step_time_s"][0] > 0
    low, high = found["bounds"]["peak_bytes"]
    assert low < high
    assert found["status"] == "fits"
    # Between the bounds nobody knows.
    between = checked(tmp_path, plan, **how, min_free_gib=(CAPACITY - (low + high) / 2) / 2**30)
    assert between["status"] == "unknown"
    beyond = checked(tmp_path, plan, **how, min_free_gib=(CAPACITY - 0.99 * low) / 2**30)
    assert beyond["status"] == "too_big"


@pytest.mark.parametrize("modules", [["core_attn"], ["layernorm", "mlp"]])
def test_modules_of_one_s_own_choice_have_a_price(tmp_path: Path, modules: list[str]) -> None:
    none, named, full = (
        checked(tmp_path, {"tp": 2, "pp": 4, **given})
        for given in ({"recompute": "none"}, {"recompute_modules": modules}, {"recompute": "full"})
    )
    assert named["priced"]
    assert named["plan"]["recompute_modules"] == modules
    times = [entry["prediction"]["step_time_s"] for entry in (none, named, full)]
    assert times == sorted(times)
    told = any("saves nothing" in warning for warning in named["warnings"])
    assert told == ("core_attn" in modules)


def test_an_offload_has_a_price_and_needs_room_in_the_hosts(tmp_path: Path) -> None:
    here, there = (checked(tmp_path, {"tp": 2, "pp": 4, "offload": where}) for where in ("none", "optimizer"))
    assert there["prediction"]["step_time_s"] > here["prediction"]["step_time_s"]
    assert there["prediction"]["memory"]["peak_bytes"] < here["prediction"]["memory"]["peak_bytes"]
    assert here["prediction"]["memory"]["host_bytes_per_node"] == 0
    need = there["prediction"]["memory"]["host_bytes_per_node"]
    assert 0 < need < there["prediction"]["memory"]["host_memory_bytes_per_node"]
    known = Path(find_spec("costmodel.catalog").submodule_search_locations[0]) / "clusters" / "dgx-h100.yaml"
    text = re.sub(r"(?m)^host_memory_bytes_per_node: .*$", f"host_memory_bytes_per_node: {need - 1}", known.read_text())
    (tmp_path / "cluster.yaml").write_text(text, encoding="utf-8")
    found = checked(tmp_path, {"tp": 2, "pp": 4, "offload": "optimizer"}, cluster=str(tmp_path / "cluster.yaml"))
    assert found["status"] == "too_big"
    assert any(warning.startswith("host memory: what is offloaded takes") for warning in found["warnings"])
    assert found["memory"]["short_of"] == ["host"]
    assert found["memory"]["host"] == {
        "verdict": "too_big",
        "needed_bytes_per_node": need,
        "memory_bytes_per_node": need - 1,
        "free_bytes_per_node": -1,
    }
    assert all(stage["verdict"] == "fits" for stage in found["memory"]["stages"])
    assert (here["memory"]["short_of"], here["memory"]["host"]) == ([], None)
    assert (there["memory"]["short_of"], there["memory"]["host"]["verdict"]) == ([], "fits")


def test_hosts_of_unknown_memory_are_not_said_to_be_short(tmp_path: Path) -> None:
    known = Path(find_spec("costmodel.catalog").submodule_search_locations[0]) / "clusters" / "dgx-h100.yaml"
    text = re.sub(r"(?m)^host_memory_bytes_per_node: .*\n", "", known.read_text())
    (tmp_path / "cluster.yaml").write_text(text, encoding="utf-8")
    found = checked(tmp_path, {"tp": 2, "pp": 4, "offload": "optimizer"}, cluster=str(tmp_path / "cluster.yaml"))
    assert found["status"] == "fits"
    host = found["memory"]["host"]
    assert host["verdict"] == "unknown"
    assert host["needed_bytes_per_node"] > 0
    assert (host["memory_bytes_per_node"], host["free_bytes_per_node"]) == (None, None)


HUGE = {"model": "llama-3.1-405b", "devices": 16, "global_batch_size": 64, "seq_len": 8192, "framework": "deepspeed"}
OFFLOADED = {"tp": 1, "zero_stage": 3, "offload": "parameters", "recompute": "full"}


@pytest.mark.parametrize(("recompute", "short"), [("full", ["host"]), ("none", ["device", "host"])])
def test_what_is_short_is_told_apart_and_nothing_fits_for_that_very_reason(
    tmp_path: Path, recompute: str, short: list[str]
) -> None:
    """18 bytes for each of 405 billion parameters lie in two hosts."""
    found = checked(tmp_path, OFFLOADED | {"recompute": recompute}, **HUGE)
    assert (found["status"], found["memory"]["short_of"]) == ("too_big", short)
    assert found["memory"]["host"]["needed_bytes_per_node"] == pytest.approx(18 * 405.85e9 / 2, rel=0.01)
    assert found["nearest"] is None
    reason = found["infeasibility"]["conflict"][0]["reason"]
    assert "offload parameters) needs" in reason
    assert "GiB of host memory per node for what it offloads, where a node of dgx-h100 has 2048.0 GiB" in reason


@pytest.mark.parametrize(
    ("plan", "how", "says"),
    [
        (
            {"pp": 2, "vpp": 2, "schedule": "interleaved_1f1b", "recompute": "full", "recompute_interval": 9},
            {},
            "recompute_interval 9 means the same as 8: no chunk of a stage has more layers that run again",
        ),
        (
            {"zero_stage": 3, "fsdp_prefetch": 33},
            {"framework": "torchtitan"},
            "fsdp_prefetch 33 means the same as 32: no stage has more layers",
        ),
    ],
)
def test_options_that_count_beyond_the_layers_are_told(
    tmp_path: Path, plan: dict[str, Any], how: dict[str, Any], says: str
) -> None:
    beyond = checked(tmp_path, plan, **how)
    assert beyond["status"] in ("fits", "at_risk")
    assert beyond["warnings"] == [says]
    name, value = says.split()[:2]
    within = checked(tmp_path, plan | {name: int(value) - 1}, **how)
    assert within["warnings"] == []
    assert same(within["prediction"], beyond["prediction"])


def test_sequences_that_stay_whole_need_more(tmp_path: Path) -> None:
    cut, whole = (checked(tmp_path, {"tp": 4, "sequence_parallel": flag}) for flag in (True, False))
    assert whole["violations"] == []
    assert whole["priced"]
    for more, less in zip(whole["memory"]["stages"], cut["memory"]["stages"], strict=True):
        assert more["terms"]["activations"] > less["terms"]["activations"]
        assert more["terms"]["parameters"] == less["terms"]["parameters"]


@pytest.mark.parametrize(("share", "status"), [(0.9, "too_big"), (1.01, "at_risk"), (1.1, "at_risk"), (1.3, "fits")])
def test_the_verdict_on_memory_follows_the_usable_bytes(tmp_path: Path, share: float, status: str) -> None:
    plan = {"tp": 2, "pp": 4}
    peak = checked(tmp_path, plan)["prediction"]["memory"]["peak_bytes"]
    found = checked(tmp_path, plan, min_free_gib=(CAPACITY - share * peak) / 2**30)
    assert found["status"] == status
    fullest = max(found["memory"]["stages"], key=lambda stage: stage["most_bytes"])
    assert (fullest["stage"], fullest["verdict"]) == (0, status)
    assert fullest["free_bytes"] == pytest.approx((share - 1) * peak, abs=2)
    assert fullest["largest_term"] == max(fullest["terms"], key=fullest["terms"].__getitem__)


def test_the_leanest_plan_is_named_when_nothing_fits(tmp_path: Path) -> None:
    found = checked(tmp_path, {"tp": 8}, model="llama-3.1-405b")
    assert (found["status"], found["nearest"], found["best"]) == ("too_big", None, None)
    conflict = found["infeasibility"]["conflict"][0]
    assert conflict["rule"] == "memory"
    assert "the leanest plan" in conflict["reason"]


def test_the_best_plan_and_what_it_gains(tmp_path: Path) -> None:
    answer = suggest(Question(**SCENARIO))
    for rank in (1, 4, 10):
        entry = answer["plans"][rank - 1]
        best = checked(tmp_path, entry["plan"], best=True)["best"]
        assert best["plan"] == answer["plans"][0]["plan"]
        assert best["rank"] == rank
        assert best["gain"] == pytest.approx(1 - answer["best"] / entry["prediction"]["step_time_s"], rel=1e-9)
        assert bool(best["changes"]) == (rank > 1)
    slow = checked(tmp_path, {"tp": 8, "recompute": "full"}, best=True)["best"]
    assert slow["rank"] is None
    assert slow["gain"] > 0.1
    illegal = checked(tmp_path, {"tp": 3}, best=True)["best"]
    assert (illegal["gain"], illegal["rank"]) == (None, None)


def test_a_name_that_no_catalog_has_is_told_where_it_stands(tmp_path: Path) -> None:
    for plan, flags, text in (
        ({"framework_version": "0.99"}, {}, "plan.framework_version: '0.99' is not usable; known are 0.9, 0.10"),
        ({}, {"framework_version": "1"}, "framework-version: '1' is not usable; known are 0.9, 0.10"),
        ({"precision": "bf61"}, {}, "plan.precision: 'bf61' is not usable; did you mean"),
        ({}, {"precision": "bf61"}, "precision: 'bf61' is not usable; did you mean"),
        ({"framework": "torchtitam"}, {}, "plan.framework: 'torchtitam' is not usable; did you mean torchtitan"),
    ):
        with pytest.raises(InvalidInput) as caught:
            checked(tmp_path, plan, **flags)
        assert str(caught.value).startswith(text)


def test_the_answer_is_json(tmp_path: Path) -> None:
    for plan in ({"tp": 2}, {"tp": 3}, {"tp": 2, "offload": "parameters"}):
        assert json.loads(json.dumps(checked(tmp_path, plan), allow_nan=False))["plan"]["tp"] == plan["tp"]
