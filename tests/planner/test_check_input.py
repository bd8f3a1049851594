"""What ``check`` reads: plan files that can't be understood are bad input, plans that are wrong are answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.catalog.framework_catalog import framework_names, load_framework
from costmodel.errors import InvalidInput
from costmodel.plan_rows import encode, layout_of
from costmodel.rules import broken, rules_for
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES, Plan
from costmodel.spec.plan_draft import PlanDraft, read_draft
from tests.checks import checked, slugs, write_plan
from tests.scenarios import scenario_of


def test_a_draft_has_the_fields_of_a_plan() -> None:
    assert list(PlanDraft.model_fields) == list(Plan.model_fields)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"tp": 0}, "plan.tp: 0 is not usable; it has to be at least 1"),
        ({"tp": -8}, "plan.tp: -8 is not usable; it has to be at least 1"),
        ({"tp": "8"}, "plan.tp: '8' is not usable; a whole number is expected"),
        ({"tp": 8.0}, "plan.tp: 8.0 is not usable; a whole number is expected"),
        ({"tp": True}, "plan.tp: True is not usable; a whole number is expected"),
        ({"tp": [8]}, "plan.tp: [8] is not usable; a whole number is expected"),
        ({"tp": {"size": 8}}, "plan.tp: 'a mapping' is not usable; a plan is flat"),
        ({"tp": 10**16}, "it has to be at most 1000000000000000"),
        ({"tp": 10**40}, "plan.tp: 'a number of 133 bits' is not usable"),
        ({"tp": float("nan")}, "plan.tp: nan is not usable"),
        ({"dp": float("inf")}, "plan.dp: inf is not usable"),
        ({"zero_stage": 4}, "plan.zero_stage: 4 is not usable; it has to be at most 3"),
        ({"zero_stage": True}, "plan.zero_stage: True is not usable"),
        ({"sequence_parallel": "yes"}, "plan.sequence_parallel: 'yes' is not usable; true or false is expected"),
        ({"sequence_parallel": 1}, "plan.sequence_parallel: 1 is not usable; true or false is expected"),
        ({"schedule": "1F1B"}, "plan.schedule: '1F1B' is not usable; it has to be 'gpipe', '1f1b', "),
        ({"recompute": "partial"}, "it has to be 'none', 'selective' or 'full'"),
        ({"precision": 16}, "plan.precision: 16 is not usable; text is expected"),
        ({"framework_version": 0.16}, "plan.framework_version: 0.16 is not usable; text is expected"),
        ({"layers_per_stage": 8}, "plan.layers_per_stage: 8 is not usable; a list is expected"),
        ({"layers_per_stage": []}, "plan.layers_per_stage: [] is not usable; a list with at least 1 entry is expected"),
        ({"precision": ""}, "plan.precision: '' is not usable; it must not be empty"),
        ({"layers_per_stage": [8, -1]}, "plan.layers_per_stage[1]: -1 is not usable; it has to be at least 0"),
        ({"layers_per_stage": [1] * 20000}, "plan.layers_per_stage: 'over 10000 entries' is not usable"),
        ({"layers_per_chunk": [4, 4]}, "plan.layers_per_chunk[0]: 4 is not usable"),
        ({"layers_per_chunk": [[]]}, "plan.layers_per_chunk[0]: [] is not usable"),
        ({"layers_per_chunk": [[[1]]]}, "plan.layers_per_chunk: 'nested lists' is not usable"),
        (
            {"zero_plus": "qwz+qgz"},
            """'qwz+qgz' is not usable; a list of any of qwz, hpz, qgz is expected, as in ["qwz", "qgz"]""",
        ),
        ({"zero_plus": "none"}, "as in []"),
        ({"zero_plus": "fast"}, 'as in ["qwz", "hpz"]'),
        ({"zero_plus": ["qwz", "fast"]}, "plan.zero_plus[1]: 'fast' is not usable; it has to be 'qwz', 'hpz' or 'qgz'"),
        ({"recompute_modules": "moe_act"}, 'moe, shared_experts, gdn_norm_out, mhc is expected, as in ["moe_act"]'),
        ({"tensor_parallel": 8}, "plan.tensor_parallel: 8 is not usable; no such field"),
        ({"micro_batch": 2}, "no such field; did you mean micro_batch_size"),
        ({"x" * 100_000: 2}, "field names are short texts"),
    ],
)
def test_what_no_plan_can_hold_is_bad_input(plan: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_draft(plan)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    # Nothing of the words of the library that reads it.
    assert not {"Input", "Tuple", "List", "should", "validation"} & set(str(caught.value).split())


def test_a_list_is_not_called_short_for_its_unusable_entries() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_draft({"layers_per_chunk": [4, 4]})
    assert "at least 1 entry" not in str(caught.value)


def test_every_problem_is_listed() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_draft({"tp": 0, "pp": "4", "shedule": "1f1b", "dp": {"a": 1}})
    assert all(
        name in str(caught.value) for name in ("plan.tp: 0", "plan.pp: '4'", "plan.shedule", "plan.dp: 'a mapping'")
    )
    with pytest.raises(InvalidInput, match="and 88 more problems"):
        read_draft({f"unknown_{index}": 1 for index in range(100)})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "line 1, column 1"),
        ("[1, 2]", "a mapping of field to value is expected at the top"),
        ('{"tp": 8', "line 1, column"),
        ('{"tp": 8, "tp": 4}', "'tp' is given twice"),
        ('{"plans": []}', "at least one plan is expected"),
        ('{"plans": {"tp": 8}}', "at least one plan is expected"),
        ('{"plans": [8]}', "plans[0].plan: 'a int' is not usable"),
        ('{"plan": [8]}', "plan: 'a list' is not usable"),
        ('{"plan": null}', "plan: 'a NoneType' is not usable"),
        ("[" * 100_000, "nested too deeply"),
        ('{"tp": ' + "9" * 5000 + "}", "unusable value"),
    ],
)
def test_files_that_hold_no_plan(tmp_path: Path, content: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked(tmp_path, content)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 500


def test_no_alias_multiplies_a_file(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    path = tmp_path / "plan.yaml"
    path.write_text("\n".join([*lines, "tp: *a29"]), encoding="utf-8")
    from planner.check.plan_file import read_plan

    with pytest.raises(InvalidInput, match="aliases repeat parts of it too often"):
        read_plan(str(path))
    nested: list[Any] = [1] * 10
    for _ in range(29):
        nested = [nested] * 10
    with pytest.raises(InvalidInput, match="nested lists"):
        read_draft({"tp": nested})


def test_yaml_is_read_too(tmp_path: Path) -> None:
    plan = {"tp": 2, "pp": 4, "layers_per_stage": [8, 8, 8, 8], "framework_version": "0.16"}
    answers = [checked(tmp_path, plan)]
    path = write_plan(tmp_path, yaml.safe_dump(plan), "plan.yaml")
    from planner.check.check import check
    from planner.check.question import CheckQuestion
    from tests.checks import SCENARIO

    answers.append(check(CheckQuestion(plan=path, best=False, **SCENARIO)).answer)
    assert answers[0] == answers[1]


ILLEGAL: list[tuple[dict[str, Any], dict[str, Any], set[str]]] = [
    ({"tp": 8, "pp": 4}, {}, {"enough_devices"}),
    ({"tp": 8, "dp": 3}, {"devices": 32, "global_batch_size": 48}, set()),
    ({"tp": 4, "dp": 3}, {"devices": 32, "global_batch_size": 48}, set()),
    ({"tp": 2, "micro_batch_size": 3}, {}, {"batch_divisible"}),
    ({"tp": 2, "num_microbatches": 3, "micro_batch_size": 2}, {}, {"microbatches_fill_batch"}),
    ({"tp": 2, "dp": 8, "dp_shard": 3, "dp_replicate": 2}, {}, {"dp_is_replicate_times_shard"}),
    ({"tp": 2, "zero_stage": 0, "dp_shard": 4, "dp_replicate": 2}, {}, {"unsharded_has_one_shard"}),
    ({"tp": 2, "devices_used": 8}, {}, set()),
    ({"tp": 2, "devices_used": 8, "dp": 8}, {}, {"devices_used_is_the_mesh"}),
    ({"tp": 1, "sequence_parallel": True}, {}, {"sequence_parallel_follows_tp"}),
    ({"pp": 2, "layers_per_stage": [16, 15]}, {}, {"layers_add_up"}),
    ({"pp": 4, "layers_per_stage": [16, 16]}, {}, {"layers_add_up"}),
    ({"pp": 2, "layers_per_stage": [32, 0]}, {}, set()),
    ({"pp": 2, "layers_per_stage": [32, 0]}, {"framework": "torchtitan"}, {"every_stage_has_a_layer"}),
    ({"pp": 2, "vpp": 2, "layers_per_chunk": [[8, 8], [8, 8]], "layers_per_stage": [15, 17]}, {}, {"chunks_add_up"}),
    ({"pp": 2, "vpp": 2, "layers_per_chunk": [[8, 4, 4], [8, 8]]}, {}, {"chunks_add_up"}),
    ({"pp": 2, "recompute": "full", "recomputed_layers_per_stage": [17, 16]}, {}, {"recomputed_within_layers"}),
    ({"pp": 2, "recompute": "none", "recomputed_layers_per_stage": [1, 0]}, {}, {"recomputed_within_layers"}),
    ({"pp": 64}, {"devices": 64}, {"pipeline_within_layers"}),
    ({"pp": 4, "vpp": 9}, {}, {"chunks_within_layers"}),
    ({"pp": 4, "schedule": "zb_h1"}, {}, {"schedule_known"}),
    ({"pp": 4, "vpp": 2, "schedule": "1f1b"}, {}, {"schedule_fits_chunks"}),
    ({"pp": 3, "vpp": 2, "dp": 4}, {"devices": 12}, {"microbatches_divisible_by_pp"}),
    ({"ep": 2}, {}, {"experts_need_moe"}),
    ({"ep": 3}, {"model": "mixtral-8x7b"}, {"experts_divisible_by_ep", "expert_mesh_divides_world"}),
    ({"tp": 2, "ep": 8, "etp": 4}, {"model": "mixtral-8x7b"}, {"expert_mesh_divides_world"}),
    ({"tp": 16}, {"framework_version": "0.15"}, {"kv_heads_divisible_by_tp"}),
    ({"cp": 2, "cp_comm_type": "a2a"}, {"framework_version": "0.9"}, {"a2a_needs_ulysses"}),
    ({"cp": 1, "cp_comm_type": "a2a"}, {}, set()),
    ({"tp": 4, "zero_stage": 0, "dp_replicate": 1}, {}, {"unsharded_has_one_shard"}),
    ({"tp": 2, "zero_stage": 3}, {"framework_version": "0.11"}, {"gradient_sharding_needs_megatron_fsdp"}),
    ({"tp": 2, "zero_stage": 2, "optimizer": "muon"}, {}, {"megatron_fsdp_optimizer"}),
    ({"tp": 2, "global_batch_size": 128}, {}, {"plan_matches_scenario"}),
    ({"tp": 2, "seq_len": 8192}, {}, {"plan_matches_scenario"}),
    ({"tp": 2, "precision": "fp8"}, {"precision": "bf16"}, {"plan_matches_scenario"}),
    ({"tp": 10**15}, {}, {"enough_devices", "heads_divisible_by_tp", "ffn_divisible_by_tp"}),
    ({"pp": 10**15}, {}, {"enough_devices", "pipeline_within_layers"}),
    ({"vpp": 10**15, "pp": 2}, {}, {"chunks_within_layers"}),
    ({"micro_batch_size": 10**15, "dp": 10**15}, {}, {"enough_devices", "batch_divisible"}),
]


ILLEGAL_IDS = [f"{plan} {how}" for plan, how, _ in ILLEGAL]


@pytest.mark.parametrize(("plan", "how", "wanted"), ILLEGAL, ids=ILLEGAL_IDS)
def test_what_is_wrong_with_a_plan_is_an_answer(
    tmp_path: Path, plan: dict[str, Any], how: dict[str, Any], wanted: set[str]
) -> None:
    found = checked(tmp_path, plan, **how)
    assert wanted <= slugs(found)
    if max(value for value in (*plan.values(), 0) if type(value) is int) < 1000:
        assert wanted == slugs(found)
    assert (found["status"] == "illegal") == bool(wanted)
    framework = load_framework(how.get("framework", "megatron-core"), how.get("framework_version"))
    known = {rule.name: rule.source for rule in rules_for(framework)}
    for violation in found["violations"]:
        assert violation["reason"]
        assert violation["source"]
        ours = violation["source"].startswith("planner: ") and "refuses it" not in violation["source"]
        who = (None, None) if ours else (framework.name, framework.version)
        assert (violation["framework"], violation["framework_version"]) == who
        assert violation["source"] == known.get(violation["rule"], violation["source"])
    if wanted and found["nearest"]:
        assert found["nearest"]["changes"], "what is illegal has something to change"


@pytest.mark.parametrize(
    ("plan", "how", "rule"),
    [
        ({"tp": 4, "dp": 3}, {"devices": 32, "global_batch_size": 48}, "idle_devices_are_whole_nodes"),
        ({"pp": 2, "layers_per_stage": [32, 0]}, {}, "every_stage_has_a_layer"),
        ({"pp": 2, "recompute": "full", "layers_per_stage": [32, 0], "recomputed_layers_per_stage": [9, 0]}, {}, None),
        ({"pp": 33, "layers_per_stage": [0] + [1] * 32}, {"devices": 33, "global_batch_size": 33}, None),
        ({"pp": 4, "vpp": 9, "layers_per_stage": [8] * 4}, {}, "chunks_within_layers"),
    ],
)
def test_policy_is_told_and_refuses_nothing(
    tmp_path: Path, plan: dict[str, Any], how: dict[str, Any], rule: str | None
) -> None:
    found = checked(tmp_path, plan, **how)
    assert found["status"] != "illegal", found["violations"]
    assert found["priced"]
    assert found["policy"]
    assert all(entry["reason"] and entry["source"].startswith("planner: ") for entry in found["policy"])
    if rule:
        assert [entry["rule"] for entry in found["policy"]] == [rule]


def test_policy_can_t_lay_layers_over_a_pipeline_without_end(tmp_path: Path) -> None:
    found = checked(tmp_path, {"pp": 64}, devices=64)
    assert (found["status"], found["policy"]) == ("illegal", [])
    assert slugs(found) == {"pipeline_within_layers"}
    assert found["violations"][0]["framework"] is None


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"tp": 8, "cp": 1, "cp_comm_type": "all_gather"}, "cp_comm_type", "p2p"),
        ({"tp": 8, "cp_comm_type": "a2a"}, "cp_comm_type", "p2p"),
        ({"tp": 8, "pp": 1, "schedule": "gpipe"}, "schedule", "1f1b"),
        ({"tp": 8, "schedule": "interleaved_1f1b", "layers_per_stage": [32]}, "schedule", "1f1b"),
        ({"tp": 8, "etp": 8}, "etp", 1),
    ],
)
def test_what_means_nothing_is_read_in_the_usual_spelling(
    tmp_path: Path, given: dict[str, Any], field: str, value: Any
) -> None:
    found = checked(tmp_path, given)
    assert (found["status"], found["violations"]) == ("fits", [])
    assert found["plan"][field] == value
    (entry,) = found["normalised"]
    assert (entry["field"], entry["given"], entry["value"]) == (field, given[field], value)
    plain = {name: content for name, content in given.items() if name != field}
    assert checked(tmp_path, plain)["prediction"] == found["prediction"]


def test_a_schedule_or_an_exchange_that_means_something_stays(tmp_path: Path) -> None:
    found = checked(tmp_path, {"pp": 4, "schedule": "gpipe", "cp": 2, "cp_comm_type": "a2a"})
    assert found["normalised"] == []
    assert slugs(found) == {"schedule_known"}


def test_a_plan_of_another_framework_is_said_to_be(tmp_path: Path) -> None:
    plan = {"tp": 2, "framework": "torchtitan", "framework_version": "0.2"}
    found = checked(tmp_path, plan, framework="megatron-core")
    assert "the plan is of torchtitan 0.2 and is checked under megatron-core 0.16" in found["warnings"]
    assert slugs(found) == {"plan_matches_scenario"}


@pytest.mark.parametrize(
    ("plan", "rule"),
    [
        ({"pp": 10_000}, "pipeline_within_layers"),
        ({"pp": 10_000, "layers_per_stage": [1] * 10_000}, "layers_add_up"),
    ],
    ids=["pp", "own"],
)
@pytest.mark.parametrize("devices", [64, 16384])
def test_pipelines_without_end_are_refused_for_their_length(
    tmp_path: Path, plan: dict[str, Any], rule: str, devices: int
) -> None:
    found = checked(tmp_path, plan, devices=devices, model="llama-3.1-405b", global_batch_size=2048)
    assert found["status"] == "illegal"
    assert rule in slugs(found)


@pytest.mark.parametrize(("plan", "how", "broken_rules"), ILLEGAL, ids=ILLEGAL_IDS)
def test_checker_and_rules_agree_where_both_speak(
    tmp_path: Path, plan: dict[str, Any], how: dict[str, Any], broken_rules: set[str]
) -> None:
    found = checked(tmp_path, plan, **how)
    whole = read_draft({name: value for name, value in found["plan"].items() if value not in (None, [])})
    scenario = scenario_of(
        how.get("model", "llama-3.1-8b"),
        devices=how.get("devices", 16),
        global_batch_size=how.get("global_batch_size", 64),
        seq_len=4096,
        version=found["plan"]["framework_version"],
        optimizer=found["plan"]["optimizer"],
    )
    given = whole.model_dump(exclude_none=True)
    as_plan = Plan.model_construct(**{**given, "layers_per_stage": whole.layers_per_stage or ()})
    layout = layout_of(as_plan, scenario.model.num_layers)
    if layout is None:
        assert slugs(found) or found["policy"]  # layers that no table can hold: the checker alone speaks
        return
    row = encode(scenario, as_plan, layout)
    if max(row.values()) < 10**6:
        known = {rule.name for rule in rules_for(scenario.framework)}
        told = slugs(found) | {entry["rule"] for entry in found["policy"]}
        assert {rule.name for rule, _ in broken(scenario, row)} == told & known


def test_contradictions_name_the_fields(tmp_path: Path) -> None:
    found = checked(tmp_path, {"tp": 2, "global_batch_size": 128, "seq_len": 8192})
    (violation,) = found["violations"]
    assert "global_batch_size 128, the scenario has 64" in violation["reason"]
    assert "seq_len 8192, the scenario has 4096" in violation["reason"]


NUMBERS = st.sampled_from([1, 1, 2, 2, 3, 4, 8, 16, 64, 10**6, 10**15])
WORDS = {"schedule": SCHEDULES, "recompute": RECOMPUTES, "cp_comm_type": CP_COMM_TYPES}
WORDS |= {"offload": ("none", "optimizer", "activations"), "framework_version": ("0.9", "0.13", "0.16")}  # type: ignore[dict-item]
LISTS = st.lists(st.sampled_from([0, 1, 2, 4, 8, 16, 32]), min_size=1, max_size=5)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Plans of which some fields are what they should be, some contradict others, and few are nothing at all."""
    plan: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(list(Plan.model_fields)), max_size=10, unique=True)):
        if draw(st.integers(0, 30)) == 0:
            plan[name] = draw(JUNK)
        elif name in WORDS:
            plan[name] = draw(st.sampled_from(WORDS[name]))
        elif name == "layers_per_chunk":
            plan[name] = draw(st.lists(LISTS, min_size=1, max_size=4))
        elif "layers" in name:
            plan[name] = draw(LISTS)
        elif name == "sequence_parallel":
            plan[name] = draw(st.booleans())
        elif name == "zero_stage":
            plan[name] = draw(st.integers(0, 3))
        elif name not in ("precision", "optimizer", "framework", "recompute_modules"):
            plan[name] = draw(NUMBERS)
    return plan


@pytest.mark.slow
@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    plan=plans(),
    model=st.sampled_from(["llama-3.1-8b", "deepseek-v2-lite"]),
    devices=st.sampled_from([None, 16]),
    framework=st.sampled_from(framework_names()),
)
def test_no_plan_is_too_odd(
    tmp_path: Path, plan: dict[str, Any], model: str, devices: int | None, framework: str
) -> None:
    how = {"model": model, "devices": devices, "framework": framework}
    try:
        found = checked(tmp_path, json.dumps(plan), max_seconds=5.0, **how)
    except InvalidInput as error:
        found = {"told": str(error)}
    json.dumps(found, allow_nan=False)
    if "told" in found:
        assert "\n" not in found["told"]
        return
    assert (found["status"] == "illegal") == bool(found["violations"])
    if found["status"] != "illegal":
        Plan.model_validate(found["plan"])
        assert found["priced"] == (found["prediction"] is not None) == (found["bounds"] is None)
