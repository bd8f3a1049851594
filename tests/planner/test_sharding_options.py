"""A search and a check with options of data parallelism: pins, what is tried unasked, refusals by name, warnings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.check.check import check
from planner.check.question import CheckQuestion
from planner.question import Question
from tests.searches import suggest

ASKED: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "dgx-h100",
    "devices": 64,
    "global_batch_size": 256,
    "seq_len": 8192,
}


def answered(framework: str, *pins: str) -> dict[str, Any]:
    return suggest(Question(**ASKED, framework=framework, pins=pins, top=3))


@pytest.mark.parametrize(
    ("framework", "pin", "value"),
    [
        ("torchtitan", "reshard_after=backward", "backward"),
        ("pytorch-fsdp", "reshard_after=step", "step"),
        ("torchtitan", "fsdp_prefetch=0", 0),
        ("deepspeed", "gradient_sync=step", "step"),
        ("megatron-core", "gradient_sync=microbatch", "microbatch"),
        ("deepspeed", "zero_plus=hpz", ["hpz"]),
        ("deepspeed", "zero_plus=qwz+qgz", ["qwz", "qgz"]),
    ],
)
def test_a_pin_is_in_every_plan_and_the_list_is_proven(framework: str, pin: str, value: Any) -> None:
    answer = answered(framework, pin)
    assert answer["status"] == "optimal"
    assert answer["proven_top_k"]
    assert [plan["plan"][pin.partition("=")[0]] for plan in answer["plans"]] == [value] * 3


def test_what_fsdp_can_keep_to_the_end_of_the_step_is_tried_unasked() -> None:
    """No plan that a pin leaves is better than the best without one."""
    best = answered("pytorch-fsdp")["best"]
    kept, dropped = (answered("pytorch-fsdp", f"reshard_after={value}")["best"] for value in ("step", "forward"))
    assert best == min(kept, dropped) == kept < dropped


@pytest.mark.parametrize(
    ("framework", "pins", "rule"),
    [
        ("megatron-core", ["zero_plus=hpz"], "zero_plus_known"),
        ("deepspeed", ["zero_plus=qwz", "zero_stage=2"], "zero_plus_needs_zero_3"),
        ("deepspeed", ["zero_plus=hpz", "tp=2"], "second_copy_without_model_parallelism"),
        ("torchtitan", ["reshard_after=step", "zero_stage=2"], "reshard_needs_zero_3"),
        ("torchtitan", ["reshard_after=step", "pp=1"], "parameters_stay_in_pipelines_alone"),
        ("accelerate", ["reshard_after=step"], "reshard_known"),
        ("deepspeed", ["zero_stage=3", "pp=4"], "pipeline_needs_zero_below_2"),
    ],
)
def test_what_no_plan_can_have_is_eliminated_by_its_rule(framework: str, pins: list[str], rule: str) -> None:
    answer = answered(framework, *pins)
    assert answer["status"] == "infeasible"
    assert answer["eliminated"][rule] > 0
    assert rule in {entry["rule"] for entry in answer["infeasibility"]["conflict"]}


def checked(tmp_path: Path, **fields: Any) -> dict[str, Any]:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"framework": "deepspeed", "dp": 64, "zero_stage": 3} | fields))
    return check(CheckQuestion(plan=str(file), **ASKED, nearest=False)).answer


def test_a_check_names_the_rule_and_says_what_changes_the_training(tmp_path: Path) -> None:
    fine = checked(tmp_path, zero_plus=["qwz", "hpz"])
    assert fine["status"] in ("fits", "at_risk")
    assert [line for line in fine["warnings"] if "changes the training" in line] == [
        "zero_plus qwz changes the training: the passes see weights rounded to blocks of INT8"
    ]
    broken = checked(tmp_path, zero_plus=["qgz"], zero_stage=2)
    assert broken["status"] == "illegal"
    assert [entry["rule"] for entry in broken["violations"]] == ["zero_plus_needs_zero_3"]
    assert "pipeline_needs_zero_below_2" in {entry["rule"] for entry in checked(tmp_path, dp=16, pp=4)["violations"]}


def test_a_search_says_what_changes_the_training() -> None:
    warnings = answered("deepspeed", "zero_plus=qwz+hpz+qgz")["warnings"]
    assert [line.split(":")[0] for line in warnings] == [
        "zero_plus qwz changes the training",
        "zero_plus qgz changes the training",
    ]
    assert not any("changes the training" in line for line in answered("deepspeed", "zero_plus=hpz")["warnings"])
