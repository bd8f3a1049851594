"""Parameters of every device, and the bytes that they carry through memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costmodel.arrays import num
from costmodel.catalog.framework_catalog import load_framework
from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.facts import Facts
from costmodel.memory import stage_params
from costmodel.scenario import Scenario
from costmodel.table import PlanTable, stage_table
from costmodel.term_outputs import evaluate_terms
from costmodel.terms.state import PARAMETERS, state_bytes
from tests.scenarios import axes_of, broken_down, padded_vocab, plan_row, scenario_of

STATE = ("parameters", "gradients", "optimizer")


def params_per_stage(scenario: Scenario, **axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Parameters of each pipeline device: of the dense mesh, and of the experts."""
    facts = Facts.of(scenario)
    table = PlanTable.of_rows([plan_row(1024, **axes)])
    stages = stage_table(scenario, table, every_stage=True)
    dense, expert = stage_params(facts, evaluate_terms(facts, table), stages)
    return dense[0], expert[0]


def state_per_stage(scenario: Scenario, **axes: int) -> dict[str, np.ndarray]:
    found = broken_down(scenario, plan_row(scenario.workload.global_batch_size, **axes))
    return {term: found.memory[term][0] for term in STATE}


@pytest.mark.parametrize("model", model_names())
def test_one_device_holds_the_whole_model(model: str) -> None:
    """As many parameters as the model's own count, with its multi-token prediction and a padded vocabulary."""
    spec = load_model(model)
    dense, expert = params_per_stage(scenario_of(model))
    tables = 1 if spec.tie_word_embeddings else 2
    padding = tables * (padded_vocab(spec, 1) - spec.vocab_size) * spec.hidden_size
    assert dense.sum() + expert.sum() == pytest.approx(spec.params.with_mtp + padding, rel=1e-6)


@pytest.mark.parametrize("model", ["llama-3.1-70b", "deepseek-v3", "mixtral-8x7b", "gpt2"])
@pytest.mark.parametrize(("pp", "vpp"), [(2, 1), (4, 1), (4, 3)])
def test_a_pipeline_holds_every_parameter_once(model: str, pp: int, vpp: int) -> None:
    scenario = scenario_of(model)
    whole = sum(part.sum() for part in params_per_stage(scenario))
    cut = sum(part.sum() for part in params_per_stage(scenario, pp=pp, vpp=vpp))
    # A tied table is kept by both ends of a pipeline.
    copy = scenario.model.tie_word_embeddings * padded_vocab(scenario.model, 1) * scenario.model.hidden_size
    assert cut == pytest.approx(whole + copy)


def test_tensor_parallel_ranks_share_the_parameters_but_the_norms() -> None:
    scenario = scenario_of("llama-3.1-70b")
    model = scenario.model
    whole, part = (params_per_stage(scenario, tp=tp)[0].sum() for tp in (1, 8))
    padding = 2 * (padded_vocab(model, 8) - padded_vocab(model, 1)) * model.hidden_size
    norms = model.num_layers * model.params.norms_per_layer + model.params.final_norm
    assert 8 * part == pytest.approx(whole + padding + 7 * norms)


def test_key_value_heads_are_copied_once_there_are_more_ranks_than_heads() -> None:
    """Two KV heads on eight ranks: each head four times (Megatron-Core 0.16)."""
    scenario = scenario_of("qwen2.5-3b")
    model = scenario.model
    assert model.num_kv_heads == 2
    facts = Facts.of(scenario)

    def on_all_ranks(tp: int) -> float:
        layer = PARAMETERS.evaluate(facts, axes_of(tp=tp, ep=1, etp=1))["dense_layer_params"][0]
        return float(tp * (layer - model.params.norms_per_layer))

    one_copy = model.hidden_size * model.num_kv_heads * 2 * model.head_dim
    assert on_all_ranks(2) == pytest.approx(on_all_ranks(1))
    assert on_all_ranks(8) - on_all_ranks(2) == pytest.approx(3 * one_copy)


def test_latent_attention_keeps_its_down_projections_whole() -> None:
    scenario = scenario_of("deepseek-v3")
    facts, mla = Facts.of(scenario), scenario.model.mla
    assert mla is not None
    assert mla.q_lora_rank is not None

    def layer(tp: int) -> float:
        return float(PARAMETERS.evaluate(facts, axes_of(tp=tp, ep=1, etp=1))["dense_layer_params"][0])

    down = scenario.model.hidden_size * (mla.q_lora_rank + mla.kv_lora_rank + mla.qk_rope_head_dim)
    uncut = down + scenario.model.params.norms_per_layer
    assert layer(8) - uncut == pytest.approx((layer(1) - uncut) / 8)


@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v3"])
@pytest.mark.parametrize(("ep", "etp"), [(2, 1), (8, 1), (1, 2), (4, 2), (8, 4)])
def test_experts_are_cut_by_ep_and_etp_and_nothing_else(model: str, ep: int, etp: int) -> None:
    scenario = scenario_of(model)
    whole_dense, whole_expert = params_per_stage(scenario)
    for tp in (1, 2):
        dense, expert = params_per_stage(scenario, ep=ep, etp=etp, tp=tp)
        assert expert == pytest.approx(whole_expert / (ep * etp))
        if tp == 1:
            assert dense == pytest.approx(whole_dense)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "mesh", [{"dp": 8}, {"dp": 4, "cp": 2}, {"tp": 4, "dp": 8, "pp": 4}, {"dp": 8, "dp_replicate": 2}]
)
def test_memory_carries_the_bytes_of_the_zero_formula(zero_stage: int, mesh: dict[str, int]) -> None:
    """What ``state_bytes`` says, which the published figures pin: 2 + 4 + 12 bytes, cut over ``dp_shard * cp``."""
    if zero_stage == 0:
        mesh = {axis: value for axis, value in mesh.items() if axis != "dp_replicate"}
    scenario = scenario_of("llama-3-8b", devices=128)
    found = state_per_stage(scenario, zero_stage=zero_stage, **mesh)
    params, _ = params_per_stage(scenario, zero_stage=zero_stage, **mesh)
    shards = mesh["dp"] // mesh.get("dp_replicate", 1) * mesh.get("cp", 1)
    expected = state_bytes(
        params, num(shards), num(zero_stage), param_bytes=num(2), gradient_bytes=num(4), optimizer_bytes=num(12)
    )
    assert sum(found.values()) == pytest.approx(expected)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
@pytest.mark.parametrize(
    ("mesh", "expert_shards"),
    [
        ({"dp": 64, "ep": 8}, 8),
        ({"dp": 32, "tp": 2, "ep": 8}, 8),
        ({"dp": 16, "tp": 4, "ep": 8, "etp": 4}, 2),
        ({"dp": 16, "cp": 4, "ep": 32}, 2),
        ({"dp": 64, "ep": 64}, 1),
    ],
)
def test_expert_state_is_sharded_over_its_own_mesh(zero_stage: int, mesh: dict[str, int], expert_shards: int) -> None:
    """``expert_dp = tp cp dp / (ep etp)`` ranks hold the same experts."""
    scenario = scenario_of("deepseek-v3", devices=64, global_batch_size=64)
    found = state_per_stage(scenario, zero_stage=zero_stage, **mesh)
    dense, expert = params_per_stage(scenario, zero_stage=zero_stage, **mesh)
    shards = mesh["dp"] * mesh.get("cp", 1)
    recipe: dict[str, Any] = {"param_bytes": num(2), "gradient_bytes": num(4), "optimizer_bytes": num(12)}
    expected = state_bytes(dense, num(shards), num(zero_stage), **recipe)
    expected = expected + state_bytes(expert, num(expert_shards), num(zero_stage), **recipe)
    assert sum(found.values()) == pytest.approx(expected)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("model", ["llama-3-8b", "gpt2", "qwen2.5-7b"])
def test_tables_are_padded_as_megatron_pads_them(model: str, tp: int) -> None:
    scenario = scenario_of(model)
    table = PARAMETERS.evaluate(Facts.of(scenario), axes_of(tp=tp, ep=1, etp=1))["table_params"]
    assert table * tp == padded_vocab(scenario.model, tp) * scenario.model.hidden_size


def test_shards_that_are_the_master_copy_carry_16_bytes() -> None:
    """PyTorch FSDP's mixed precision: parameter, gradient and two moments in fp32; only what is gathered is cast.

    Llama 3.1 405B on 128 devices as torchtitan trains it: 47.25 GiB of state (pytorch/torchtitan docs, July 2024).
    """
    scenario = scenario_of("llama-3.1-405b", devices=128).model_copy(update={"framework": load_framework("torchtitan")})
    found = broken_down(scenario, plan_row(128, tp=8, dp=16, zero_stage=3))
    state = sum(float(found.memory[term][0, 0]) for term in STATE)
    assert state / 2**30 == pytest.approx(47.25, rel=0.01)
    assert found.memory["gathered_parameters"][0, 0] < found.memory["parameters"][0, 0]
