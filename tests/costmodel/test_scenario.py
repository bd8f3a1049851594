"""What a scenario derives for the terms, and that no fact of one device, model or framework hides in their code."""

from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import costmodel
from costmodel.catalog.cluster_catalog import accelerator_names, cluster_names, load_cluster
from costmodel.catalog.framework_catalog import framework_names, load_framework, load_precision
from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.errors import InvalidInput
from costmodel.facts import MAX_TIERS, Facts
from costmodel.scenario import Scenario, lacking_format
from costmodel.spec.base import FrozenMap
from tests.scenarios import plan_row, priced, scenario_of

GIB = 2**30


def test_usable_memory_is_a_share_of_the_device_less_what_the_user_leaves_free() -> None:
    scenario = scenario_of(cluster="dgx-h100")
    capacity = scenario.cluster.accelerator.memory_bytes
    assert scenario.usable_bytes == int(capacity * float(scenario.resolved.parameters.usable_fraction))
    spared = scenario.model_copy(update={"min_free_bytes": 20 * GIB})
    assert spared.usable_bytes == capacity - 20 * GIB
    # Asking to keep a little free admits nothing that the calibration would not.
    assert scenario.model_copy(update={"min_free_bytes": 2 * GIB}).usable_bytes == scenario.usable_bytes


def test_a_precision_that_the_framework_does_not_train_in_is_refused() -> None:
    scenario = scenario_of(gradient_bytes={"bf16": 4})
    assert scenario.gradient_bytes == 4
    with pytest.raises(InvalidInput, match=r"precision: 'fp16' is not usable; Megatron-Core trains in bf16"):
        _ = scenario_of(precision="fp16", gradient_bytes={"bf16": 4}).gradient_bytes


def test_no_number_comes_of_a_precision_that_the_device_does_not_have() -> None:
    """A rule refuses it (``precision_in_hardware``); whoever prices it all the same gets none."""
    scenario = scenario_of(cluster="dgx-a100-80gb", precision="fp8")
    assert np.isnan(priced(scenario, plan_row(256, dp=64)).step_time_s).all()


def test_a_scenario_that_can_be_priced_passes_the_check() -> None:
    scenario_of().check()
    scenario_of(precision="fp8").check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster": "rtx4090-8", "devices": 16}, "devices: 16 is not usable; rtx4090-8 has 8"),
        ({"precision": "fp16", "gradient_bytes": {"bf16": 4}}, "precision: 'fp16' is not usable; Megatron-Core trains"),
    ],
    ids=["devices", "framework"],
)
def test_a_scenario_that_can_not_be_priced_is_refused_by_the_check(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        scenario_of(**changes).check()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", framework_names())
def test_what_has_no_rules_of_its_own_says_so(name: str) -> None:
    framework = load_framework(name)
    warning = f"no rules of {framework.title} are known here: only arithmetic was checked"
    found = scenario_of().model_copy(update={"framework": framework}).warnings()
    assert (warning in found) == (framework.rules is None)


def test_the_device_needs_the_format_of_the_attention_core_too() -> None:
    """An fp8 recipe keeps attention in bf16; a device with fp8 alone can't train in it."""
    cluster = load_cluster("dgx-h100")
    only_fp8 = cluster.accelerator.model_copy(update={"peak_flops_per_s": FrozenMap({"fp8": 1979e12})})
    lacking = lacking_format(load_precision("fp8"), only_fp8)
    assert lacking is not None
    assert lacking.startswith("fp8 computes in bf16; h100-sxm5-80gb has fp8")


def test_a_changed_copy_is_resolved_anew() -> None:
    scenario = scenario_of(cluster="dgx-h100")
    hopper = scenario.resolved.parameters.gemm_efficiency
    moved = scenario.model_copy(update={"cluster": load_cluster("dgx-a100-80gb")})
    assert moved.resolved == scenario_of(cluster="dgx-a100-80gb").resolved
    assert moved.resolved.parameters.gemm_efficiency != hopper
    older = scenario.framework.at("0.9")
    assert older.has("uneven_ends")
    assert not older.has("kv_replication")
    assert scenario.framework.has("kv_replication")
    assert not scenario.framework.has("a feature of tomorrow")


def test_scenarios_are_values() -> None:
    first, second = scenario_of(), scenario_of()
    assert first == second
    assert hash(first) == hash(second)
    assert pickle.loads(pickle.dumps(first)) == first
    assert hash(pickle.loads(pickle.dumps(first))) == hash(first)
    assert copy.deepcopy(first) == first
    assert Scenario.model_validate_json(first.model_dump_json()) == first


def test_what_scenarios_share_can_not_be_changed() -> None:
    framework = load_framework("megatron-core")
    assert hash(framework) == hash(load_framework("megatron-core", framework.version))
    with pytest.raises(TypeError):
        framework.features["uneven_ends"] = "0.17"  # type: ignore[index]
    with pytest.raises(TypeError):
        framework.gradient_bytes["bf16"] = 2  # type: ignore[index]
    parameters = scenario_of().resolved.parameters
    with pytest.raises(ValueError, match="read-only"):
        parameters.gemm_efficiency[...] = 1


def test_a_sequence_beyond_the_models_positions_gets_a_word() -> None:
    assert scenario_of("llama-3-8b", seq_len=8192).warnings() == ()
    (warning,) = scenario_of("llama-3-8b", seq_len=16384).warnings()
    assert "16384" in warning
    assert "8192" in warning


def test_tokens_of_a_step() -> None:
    assert scenario_of(global_batch_size=2048, seq_len=8192).workload.tokens_per_step == 2**24


@pytest.mark.parametrize("cluster", cluster_names())
def test_every_cluster_of_the_catalog_can_be_priced(cluster: str) -> None:
    spec = load_cluster(cluster)
    devices = min(spec.max_devices or 16, 16)
    # Devices before Ampere have no bf16.
    precision = "bf16" if "bf16" in spec.accelerator.peak_flops_per_s else "fp16"
    scenario = scenario_of("llama-3-8b", cluster, devices, 64, 4096, precision=precision)
    facts = Facts.of(scenario)
    assert len(facts.hardware.tier_devices) == len(facts.hardware.tier_bandwidth) == MAX_TIERS
    assert 0 < priced(scenario, plan_row(64, dp=devices)).step_time_s[0] < 3600


@pytest.mark.parametrize("model", model_names())
def test_every_model_of_the_catalog_can_be_priced(model: str) -> None:
    scenario = scenario_of(model, "dgx-h100", 64, 64, 1024)
    found = priced(scenario, plan_row(64, dp=64, zero_stage=3))
    assert 0 < found.step_time_s[0] < 3600
    assert found.peak_bytes[0] > 0


def test_what_an_importer_noted_and_that_hybrids_are_averages_is_said() -> None:
    (warning,) = scenario_of("qwen3-next-80b-a3b").warnings()
    assert "of 48 layers 12 have attention, 36 gated_delta_net, 48 an MLP" in warning
    assert "priced as the average" in warning
    noted = load_model("llama-3-8b").model_copy(update={"notes": ("one", "two")})
    assert scenario_of(noted, seq_len=8192).warnings() == ("one", "two")


@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "llama-4-maverick-17b-128e"])
def test_layers_by_kind_are_those_of_the_model(model: str) -> None:
    spec, facts = load_model(model), Facts.of(scenario_of(model)).model
    assert facts.dense_layers + facts.moe_layers == spec.num_layers
    assert facts.dense_layers == spec.num_dense_layers


PRICING = sorted(
    path
    for path in Path(costmodel.__file__).parent.glob("**/*.py")
    if path.parent.name in ("terms", "collectives")
    or path.name
    in (
        "kernels.py",
        "curves.py",
        "layers.py",
        "memory.py",
        "predict.py",
        "facts.py",
        "model_facts.py",
        "stages.py",
    )
)
# Of tensors, passes, bytes of a word (half a byte has four bits), a half; FLOPs of attention backward over forward.
COUNTS = {0, 1, 2, 3, 4, 0.5, 2.5}
STRUCTURAL = {22, 62, 1024, 8192, 65536}  # rows in a block, sizes of caches and tables, "unbounded"
ROUNDING = 1e-9


def literals(path: Path) -> list[ast.Constant]:
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Constant)]


@pytest.mark.parametrize("path", PRICING, ids=lambda path: path.name)
def test_no_number_of_one_device_or_model_sits_in_the_code(path: Path) -> None:
    """What is fitted or looked up is data; code holds small counts with their meaning beside them."""
    numbers = {node.value for node in literals(path) if type(node.value) in (int, float)}
    unexplained = {value for value in numbers - COUNTS - STRUCTURAL if value > ROUNDING}
    assert not unexplained, f"{path.name}: a figure like {unexplained} belongs into the catalog or a calibration"


@pytest.mark.parametrize("path", PRICING, ids=lambda path: path.name)
def test_no_name_of_one_device_model_or_framework_sits_in_the_code(path: Path) -> None:
    names = {
        *accelerator_names(),
        *cluster_names(),
        *model_names(),
        *framework_names(),
        "hopper",
        "ampere",
        "blackwell",
    }
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {
        node.value
        for parent in ast.walk(tree)
        for node in ast.iter_child_nodes(parent)
        if isinstance(parent, ast.Expr) and isinstance(node, ast.Constant)
    }
    words = {node.value for node in literals(path) if isinstance(node.value, str)} - prose
    assert not {word for word in words if word.lower() in names}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, None),
        ({"precision": "fp16"}, None),
        ({"precision": "fp8"}, "precision fp8 changes the training"),
        ({"precision": "bf16-pure"}, "without a 32-bit copy"),
        ({"optimizer": "adamw-8bit"}, "moments are rounded to 8 bits"),
        ({"optimizer": "adamw-bf16-moments"}, "moments are rounded to 16 bits"),
    ],
)
def test_recipes_that_round_what_is_trained_are_said_to(how: dict[str, str], said: str | None) -> None:
    found = [warning for warning in scenario_of("llama-3-8b", **how).warnings() if "changes the training" in warning]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]
