"""Options of plans: every value has a code, comes back from it, and is read as a flag writes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costmodel.errors import InvalidInput
from costmodel.plan_rows import encode, plan_of
from costmodel.spec.options import BY_NAME, OPTION_NAMES
from costmodel.spec.plan import Plan
from costmodel.spec.plan_draft import PlanDraft
from costmodel.stages import Layout
from tests.scenarios import plan_row, scenario_of

UNUSUAL: dict[str, Any] = {
    "offload": "optimizer",
    "recompute_interval": 4,
    "reshard_after": "backward",
    "fsdp_prefetch": 0,
    "gradient_sync": "microbatch",
    "zero_plus": ("qwz", "qgz"),
    "tp_overlap": False,
    "cp_a2a_degree": 4,
    "cp_balanced": False,
    "moe_dispatcher": "all_to_all",
    "ep_overlap": True,
    "moe_capacity_factor": 1.25,
}
TEXTS = UNUSUAL | {"zero_plus": "qwz+qgz", "tp_overlap": "false", "cp_balanced": "False", "ep_overlap": "TRUE"}


SCENARIO = scenario_of("llama-3-8b", devices=64)
USUAL = plan_row(256, dp=64)


def test_every_option_is_a_field_of_plans_and_drafts() -> None:
    assert set(OPTION_NAMES) == set(UNUSUAL)
    assert set(BY_NAME) == {*OPTION_NAMES, "recompute_modules"}
    assert set(BY_NAME) <= set(Plan.model_fields) & set(PlanDraft.model_fields)


@pytest.mark.parametrize("name", sorted(UNUSUAL))
def test_a_plan_with_an_option_survives_its_row(name: str) -> None:
    plan = plan_of(SCENARIO, USUAL).model_copy(update={name: UNUSUAL[name]})
    row = encode(SCENARIO, plan, Layout.EVEN)
    assert row[name] != USUAL[name]
    assert plan_of(SCENARIO, row) == plan


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_flag_names_the_value(name: str) -> None:
    option = BY_NAME[name]
    assert option.decode(option.read(str(TEXTS[name]))) == UNUSUAL[name]
    written = option.write(option.encode(UNUSUAL[name]))
    assert written == str(TEXTS[name]).lower()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("offload", "disk"),
        ("recompute_interval", "0"),
        ("recompute_interval", "2.5"),
        ("fsdp_prefetch", "-1"),
        ("zero_plus", "qwz+quick"),
        ("tp_overlap", "1"),
        ("moe_capacity_factor", "nan"),
        ("moe_capacity_factor", "0.01"),
        ("moe_capacity_factor", "lots"),
        ("cp_a2a_degree", "9" * 30),
    ],
)
def test_what_is_no_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        BY_NAME[name].read(text)
    assert name in str(error.value)


@pytest.mark.parametrize("name", [*sorted(TEXTS), "recompute_modules"])
def test_a_value_is_written_as_a_flag_has_it(name: str) -> None:
    option = BY_NAME[name]
    for code in (*option.codes, option.read(str(TEXTS.get(name, "mlp+moe")))):
        written = option.write(code)
        assert option.read(written) == code
        assert not set(written) & set("()'")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("offload", "nonsense", "known are none, optimizer, activations, parameters"),
        ("tp_overlap", "yes", "known are true, false"),
        ("zero_plus", "qwz+quick", "write none alone, or any of these joined by +: qwz, hpz, qgz"),
        ("recompute_modules", "none", "write usual alone, or any of these joined by +: core_attn, layernorm, "),
        ("fsdp_prefetch", "0..3", "no range is taken here; list the values, as in fsdp_prefetch=0,1"),
        ("recompute_interval", "2..", "list the values, as in recompute_interval=1,2"),
        ("moe_capacity_factor", "1..2", "list the values, as in moe_capacity_factor=none,1.25"),
    ],
)
def test_what_would_be_right_is_told(name: str, text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as error:
        BY_NAME[name].read(text, f"pin {name}")
    assert str(error.value).startswith(f"pin {name}: ")
    assert told in error.value.expected


def test_modules_are_those_of_the_framework_or_named() -> None:
    modules = BY_NAME["recompute_modules"]
    assert modules.read("usual") == 0
    assert [modules.write(code) for code in (0, modules.encode(("mlp", "core_attn")))] == ["usual", "core_attn+mlp"]
    assert [BY_NAME[name].write(0) for name in ("zero_plus", "moe_capacity_factor")] == ["none", "none"]
    plan = plan_of(SCENARIO, USUAL | {"recompute": 1, "recompute_modules": modules.read("core_attn+mlp")})
    assert plan.recompute_modules == ("core_attn", "mlp")
    assert encode(SCENARIO, plan, Layout.EVEN)["recompute_modules"] == modules.encode(("mlp", "core_attn"))
    # What the framework does by itself has no code of its own.
    usual = plan_of(SCENARIO, USUAL | {"recompute": 1})
    assert encode(SCENARIO, usual, Layout.EVEN)["recompute_modules"] == 0
    for text in ("none", "mlp+heads"):
        with pytest.raises(InvalidInput, match="recompute_modules"):
            modules.read(text)


def test_gradients_that_are_sharded_are_reduced_after_every_micro_batch() -> None:
    stages = {"zero_stage": np.arange(4)}
    assert BY_NAME["gradient_sync"].usual_of(stages).tolist() == [0, 0, 1, 1]


def test_all_ranks_exchange_heads_under_a2a_alone() -> None:
    columns = {"cp": np.array([1, 8, 8, 8]), "cp_comm_type": np.array([0, 0, 1, 2])}
    assert BY_NAME["cp_a2a_degree"].usual_of(columns).tolist() == [1, 1, 1, 8]
