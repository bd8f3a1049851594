"""What gradients are accumulated and reduced in: which there are, what it changes, and that plans repeat it."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.checker import check_plan
from costmodel.errors import InvalidInput
from costmodel.fingerprint import scenario_id
from costmodel.plan_rows import plan_of
from costmodel.scenario import Scenario
from tests.scenarios import broken_down, plan_row, scenario_of


def with_gradients(dtype: str | None, framework: str = "megatron-core", **changes: Any) -> Scenario:
    scenario = scenario_of("llama-3-8b", **changes)
    return scenario.model_copy(update={"framework": load_framework(framework), "gradient_dtype": dtype})


def test_narrow_gradients_take_half_the_memory() -> None:
    wide, narrow = (
        broken_down(with_gradients(dtype), plan_row(256, dp=64)).memory["gradients"] for dtype in ("fp32", "bf16")
    )
    assert wide == pytest.approx(2 * narrow)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_narrow_gradients_are_half_on_the_wire(zero_stage: int) -> None:
    """The calibrated bytes are those of the usual dtype; whatever hides nothing is the part that is left of a step."""
    row = plan_row(8, dp=8, zero_stage=zero_stage)
    usual, wide, narrow = (
        broken_down(with_gradients(dtype, devices=8, global_batch_size=8, seq_len=256), row).time["dp_comm"][0]
        for dtype in (None, "fp32", "bf16")
    )
    assert wide == usual
    assert narrow < usual


def test_the_usual_gradients_change_nothing() -> None:
    usual, said = (broken_down(with_gradients(dtype), plan_row(256, dp=64)) for dtype in (None, "fp32"))
    assert usual.step_time_s == said.step_time_s
    assert usual.peak_bytes == said.peak_bytes


@pytest.mark.parametrize("framework", ["pytorch-fsdp", "accelerate", "maxtext"])
def test_shards_that_are_the_master_copy_add_gradients_up_in_their_own_type(framework: str) -> None:
    """PyTorch FSDP's ``reduce_dtype`` is that of the wire: ``.grad`` has the type of the sharded parameter."""
    scenario = with_gradients("bf16", framework)
    assert scenario.gradient_bytes == 4
    assert scenario.gradient_wire_share == 0.5


@pytest.mark.parametrize(
    ("framework", "precision", "dtype", "found"),
    [
        ("megatron-core", "bf16", None, "fp32"),
        ("megatron-core", "fp16", "fp16", "fp16"),
        ("internevo", "bf16", None, "bf16"),
        ("internevo", "fp16", None, "fp16"),
        ("pytorch-fsdp", "bf16-pure", None, "bf16"),
        ("deepspeed", "bf16", "bf16", "bf16"),
    ],
)
def test_every_scenario_says_what_its_gradients_are(
    framework: str, precision: str, dtype: str | None, found: str
) -> None:
    scenario = with_gradients(dtype, framework, precision=precision)
    scenario.check()
    assert scenario.gradients == found
    assert plan_of(scenario, plan_row(256, dp=64)).gradient_dtype == found


@pytest.mark.parametrize(
    ("framework", "precision", "dtype", "offered"),
    [
        ("torchtitan", "bf16", "bf16", "torchtitan has fp32 with bf16"),
        ("internevo", "bf16", "fp32", "InternEvo has bf16 with bf16"),
        ("megatron-core", "fp16", "bf16", "Megatron-Core has fp16, fp32 with fp16"),
        ("megatron-core", "fp32", "bf16", "Megatron-Core has fp32 with fp32"),
    ],
)
def test_gradients_that_a_framework_lacks_are_refused(framework: str, precision: str, dtype: str, offered: str) -> None:
    with pytest.raises(InvalidInput, match=f"gradient-dtype: '{dtype}' is not usable; {offered}"):
        with_gradients(dtype, framework, precision=precision).check()


def test_a_plan_repeats_its_scenario() -> None:
    narrow = with_gradients("bf16")
    plan = plan_of(narrow, plan_row(256, dp=64))
    assert not check_plan(plan, narrow)
    found = check_plan(plan, with_gradients(None))
    assert [(entry.rule, entry.reason) for entry in found] == [
        ("plan_matches_scenario", "gradient_dtype bf16, the scenario has fp32")
    ]


def test_other_gradients_are_another_scenario() -> None:
    assert scenario_id(with_gradients("bf16")) != scenario_id(with_gradients(None))
