"""The judge and the rules agree on how tokens reach their experts."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.catalog.model_catalog import load_model
from costmodel.checker import check_plan
from costmodel.recompute_modules import modules_code
from costmodel.rules import broken_by
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import RECOMPUTES
from costmodel.table import PlanTable
from tests.plans import finished, slugs
from tests.scenarios import UNCALIBRATED, plan_row, scenario_of

CHOICES = list(product((0, 1, 2), (0, 1), (0, 125)))
MESHES = [
    {"dp": 64},
    {"dp": 64, "zero_stage": 2},
    {"dp": 64, "ep": 8},
    {"dp": 16, "pp": 4, "ep": 8},
    {"dp": 16, "pp": 4, "vpp": 2, "ep": 8},
    {"dp": 64, "ep": 8, "recompute": RECOMPUTES.index("full")},
]
DEEPSEEK = load_model("deepseek-v3")
MODELS = {
    "dense": load_model("llama-3-8b"),
    "experts": load_model("mixtral-8x7b"),
    "predicting": DEEPSEEK,
    "predicting-two": DEEPSEEK.model_copy(update={"num_mtp_layers": 2}),
}


def verdicts(framework: str, version: str, model: ModelSpec, precision: str) -> Counter[str]:
    """How many plans break each rule under one version, once judge and rules were found to agree on every plan."""
    scenario = scenario_of(model, "dgx-h100", 64, 256, 8192, precision=precision, calibration=UNCALIBRATED)
    scenario = scenario.model_copy(update={"framework": load_framework(framework, version)})
    rows = [
        plan_row(256, **mesh, moe_dispatcher=dispatcher, ep_overlap=overlap, moe_capacity_factor=capacity)
        for mesh, (dispatcher, overlap, capacity) in product(MESHES, CHOICES)
        if model.moe is not None or "ep" not in mesh
    ]
    by_rule = broken_by(scenario, PlanTable.of_rows(rows))
    seen: Counter[str] = Counter()
    for index, row in enumerate(rows):
        expected = {name for name, where in by_rule.items() if where[index]}
        assert slugs(finished(scenario, row), scenario) == expected, (version, row)
        seen.update(expected or {"legal"})
    return seen


@pytest.mark.parametrize(
    "framework", ["megatron-core", "megatron-bridge", "nemo", "torchtitan", "deepspeed", "maxtext", "llm-foundry"]
)
def test_the_checker_and_the_rules_agree_on_every_way_to_the_experts(framework: str) -> None:
    seen: Counter[str] = Counter()
    for version, model in product(load_framework(framework).versions, MODELS):
        seen += verdicts(framework, version, MODELS[model], "bf16")
    seen += verdicts(framework, load_framework(framework).version, MODELS["experts"], "fp32")
    assert seen["legal"] > 0
    assert seen["capacity_needs_moe"] > 0
    runs_megatron = framework in ("megatron-core", "megatron-bridge", "nemo")
    # LLM Foundry has no ranks of experts to choose a way to; every way is on offer in all of Bridge's versions.
    assert ("moe_dispatcher_known" in seen) == (framework != "megatron-bridge")
    assert ("ep_overlap_known" in seen) == (framework != "megatron-bridge")
    assert ("capacity_known" in seen) == (framework in ("torchtitan", "llm-foundry"))
    own = {"needs_ep", "dispatcher", "needs_virtual_stages", "without_full_recompute", "precision", "mtp"}
    assert {f"ep_overlap_{name}" for name in own} <= set(seen) or not runs_megatron
    assert ("capacity_dispatcher" in seen) == runs_megatron
    assert ("ep_overlap_mtp_in_pipeline" in seen) == (framework in ("megatron-core", "megatron-bridge"))


@pytest.mark.parametrize(("version", "refused"), [("0.16", False), ("0.17", True)])
def test_overlap_once_went_with_recomputed_experts(version: str, refused: bool) -> None:
    scenario = scenario_of("mixtral-8x7b", devices=64, seq_len=8192, version=version, calibration=UNCALIBRATED)
    again = {"recompute": RECOMPUTES.index("selective"), "recompute_modules": modules_code(["moe"])}
    plan = finished(scenario, plan_row(256, dp=64, ep=8, ep_overlap=1, **again), recompute_modules=("moe",))
    found = {violation.rule for violation in check_plan(plan, scenario)}
    assert found == ({"ep_overlap_without_moe_recompute"} if refused else set())
