"""The judge and the rules agree on what is gathered, reduced and quantised when."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.catalog.model_catalog import load_model
from costmodel.rules import broken_by
from costmodel.table import PlanTable
from tests.plans import finished, slugs
from tests.scenarios import UNCALIBRATED, plan_row, scenario_of

OPTIONS = [
    {},
    {"reshard_after": 1},
    {"reshard_after": 2},
    {"fsdp_prefetch": 0},
    {"fsdp_prefetch": 3},
    {"gradient_sync": 0},
    {"gradient_sync": 1},
    *({"zero_plus": code} for code in (1, 2, 4, 7)),
    {"reshard_after": 2, "gradient_sync": 0, "zero_plus": 2},
]
MESHES = [
    {"dp": 64},
    {"dp": 32, "tp": 2},
    {"dp": 16, "pp": 4},
    {"dp": 32, "cp": 2, "cp_comm_type": 2},
    {"dp": 64, "ep": 8},
    {"dp": 64, "dp_replicate": 8},
]


@pytest.mark.parametrize(
    ("framework", "offers"),
    [
        ("deepspeed", {}),
        ("deepspeed", {"zero_plus": ("qwz",)}),
        ("torchtitan", {}),
        ("accelerate", {}),
        ("pytorch-fsdp", {}),
        ("megatron-core", {}),
        ("maxtext", {}),
    ],
)
def test_the_checker_and_the_rules_agree_on_every_option(framework: str, offers: dict[str, object]) -> None:
    seen: Counter[str] = Counter()
    for version, model in product(load_framework(framework).versions, ("llama-3-8b", "mixtral-8x7b")):
        spec = load_framework(framework, version).model_copy(update=offers)
        scenario = scenario_of(load_model(model), "dgx-h100", 64, 128, 8192, calibration=UNCALIBRATED)
        scenario = scenario.model_copy(update={"framework": spec})
        rows = [
            plan_row(128, zero_stage=zero, **mesh, **options)
            for zero, mesh, options in product(range(4), MESHES, OPTIONS)
            if (zero or "dp_replicate" not in mesh) and (model != "llama-3-8b" or "ep" not in mesh)
        ]
        by_rule = broken_by(scenario, PlanTable.of_rows(rows))
        for index, row in enumerate(rows):
            expected = {name for name, where in by_rule.items() if where[index]}
            assert slugs(finished(scenario, row), scenario) == expected, (spec.version, row)
            seen.update(expected or {"legal"})
    assert seen["legal"] > 0
    assert {"reshard_needs_zero_3", "prefetch_needs_zero_3", "zero_plus_needs_zero_3"} <= set(seen)
    if framework == "deepspeed":
        own = {"zero_plus_without_experts", "second_copy_without_model_parallelism", "second_copy_without_replicas"}
        assert {*own, "gradients_accumulate_sharded"} <= set(seen)
        assert ("zero_plus_known" in seen) == bool(offers)
    else:
        assert "zero_plus_known" in seen
    assert ("parameters_stay_in_pipelines_alone" in seen) == (framework == "torchtitan")
    assert ("reshard_known" in seen) == (framework in ("accelerate", "pytorch-fsdp"))
