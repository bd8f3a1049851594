"""Saved activations: counted against the published formula, and what recomputation and sharding leave of them."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.facts import Facts
from costmodel.recompute_modules import modules_code
from costmodel.spec.model import ModelSpec
from costmodel.terms import activations
from costmodel.terms.activations import ACTIVATIONS
from costmodel.terms.term import Outputs
from tests.scenarios import axes_of, broken_down, padded_vocab, plan_row, recalibrated, scenario_of

GPT = ModelSpec(
    name="gpt",
    num_layers=96,
    hidden_size=12288,
    num_heads=96,
    num_kv_heads=96,
    head_dim=128,
    ffn_hidden_size=4 * 12288,
    vocab_size=51200,
    gated_mlp=False,
    tie_word_embeddings=True,
)


def facts_of(model: str | ModelSpec, seq_len: int = 2048, **scenario: Any) -> Facts:
    return recalibrated(Facts.of(scenario_of(model, seq_len=seq_len, **scenario)), activation_coefficient=1)


def one_layer(facts: Facts, **axes: int) -> Outputs:
    degrees = {"tp": 1, "cp": 1, "ep": 1, "etp": 1, "micro_batch_size": 1} | axes
    return ACTIVATIONS.evaluate(facts, axes_of(**degrees))


@pytest.mark.parametrize("t", [1, 2, 8])
@pytest.mark.parametrize("b", [1, 4])
def test_a_gpt_layer_saves_what_the_published_formula_counts(t: int, b: int) -> None:
    """Korthikanti 2022 (arXiv 2205.05198), equation 4 with a fused core: 34 s b h / t, of which 2 are the dropout
    masks that models of today do without.
    """
    found = one_layer(facts_of(GPT), tp=t, micro_batch_size=b)["dense_saved_bytes"]
    assert found == pytest.approx((34 - 2) * 2048 * b * 12288 / t)


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_predictions_use_the_function_that_the_published_numbers_pin(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = scenario_of(model, devices=8, global_batch_size=8)
    pinned = activations.block_bytes_per_token

    balanced = recalibrated(Facts.of(scenario), expert_imbalance=1)
    before = broken_down(scenario, plan_row(8), facts=balanced).memory["activations"]
    monkeypatch.setattr(activations, "block_bytes_per_token", lambda **sizes: 2 * pinned(**sizes))
    after = broken_down(scenario, plan_row(8), facts=balanced).memory["activations"]
    assert after == pytest.approx(2 * before)


def test_a_gated_layer_with_grouped_heads_saves_its_own_tensors() -> None:
    """Llama 3 8B, by hand, 2 bytes each: two norm inputs and outputs, q, k, v, attention output, gate, up, product."""
    found = one_layer(facts_of("llama-3-8b", 8192))["dense_saved_bytes"]
    elements = 4 * 4096 + (4096 + 2 * 1024) + 4096 + 2 * 14336 + 14336
    assert found == pytest.approx(2 * 8192 * elements)


def test_an_expert_layer_saves_every_routed_copy() -> None:
    """Mixtral 8x7B, top 2: the MLP's tensors twice, and the permuted input once for each copy."""
    facts = recalibrated(facts_of("mixtral-8x7b", 4096), expert_imbalance=1)
    found = one_layer(facts)["moe_saved_bytes"]
    attention = 4 * 4096 + (4096 + 2 * 1024) + 4096
    assert found == pytest.approx(2 * 4096 * (attention + 2 * (4096 + 3 * 14336)))


@pytest.mark.parametrize("ep", [2, 8])
def test_expert_parallelism_moves_tokens_but_saves_as_many(ep: int) -> None:
    """What a device sends away it gets back from the others."""
    facts = facts_of("mixtral-8x7b")
    assert one_layer(facts, ep=ep)["moe_saved_bytes"] == one_layer(facts)["moe_saved_bytes"]


def test_full_recompute_keeps_the_layer_input_alone() -> None:
    """Primer, "Activation checkpointing": 2 s b h bytes, with sequence parallelism over t."""
    for t in (1, 4):
        boundary = one_layer(facts_of(GPT), tp=t, micro_batch_size=2)["boundary_bytes"]
        assert boundary == pytest.approx(2 * 2048 * 2 * 12288 / t)


def test_selective_recompute_drops_what_its_modules_name() -> None:
    """Megatron-Core's layernorm, moe_act and mla_up_proj."""
    gpt = one_layer(facts_of(GPT))
    assert gpt["dense_saved_bytes"] - gpt["dense_selective_bytes"] == pytest.approx(2 * 2 * 2048 * 12288)
    nothing = one_layer(facts_of(GPT, selective_modules=()))
    assert nothing["dense_selective_bytes"] == nothing["dense_saved_bytes"]

    moe = one_layer(recalibrated(facts_of("mixtral-8x7b", selective_modules=("moe_act",)), expert_imbalance=1))
    assert moe["moe_saved_bytes"] - moe["moe_selective_bytes"] == pytest.approx(2 * 2048 * 2 * 14336)
    assert moe["dense_saved_bytes"] == moe["dense_selective_bytes"]

    mla = one_layer(facts_of("deepseek-v3", selective_modules=("mla_up_proj",)))
    q_k_v = 128 * (192 + 192 + 128)
    assert mla["moe_saved_bytes"] - mla["moe_selective_bytes"] == pytest.approx(2 * 2048 * q_k_v)


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_policies_keep_less_the_more_they_recompute(model: str) -> None:
    kept = one_layer(facts_of(model), tp=2)
    kind = "dense" if model == "llama-3-8b" else "moe"
    assert kept["boundary_bytes"] < kept[f"{kind}_selective_bytes"] < kept[f"{kind}_saved_bytes"]


@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v3"])
@pytest.mark.parametrize("cp", [2, 8])
def test_context_parallelism_cuts_every_activation(model: str, cp: int) -> None:
    facts = facts_of(model)
    whole, part = one_layer(facts), one_layer(facts, cp=cp)
    for name, value in whole.items():
        assert part[name] * cp == pytest.approx(value), name


@pytest.mark.parametrize(("model", "heads"), [("llama-3-8b", 1), ("deepseek-v3", 2)])
def test_the_last_stage_holds_logits_once_for_every_prediction(model: str, heads: int) -> None:
    """DeepSeek-V3 predicts one token more (arXiv 2412.19437, section 2.2), through a head of its own size."""
    scenario = scenario_of(model, devices=8, global_batch_size=16, seq_len=4096)
    facts = Facts.of(scenario)
    found = broken_down(scenario, plan_row(16, tp=2, pp=4)).memory["logits"][0]
    logits = 4096 * padded_vocab(scenario.model, 2) / 2 * facts.cal.logits_bytes
    inputs = 2 * 2 * 4096 * scenario.model.hidden_size / 2
    assert found.tolist() == pytest.approx([0, 0, 0, heads * logits + inputs])


def test_routed_copies_are_buffered_on_their_way_out_and_back() -> None:
    """Mixtral 8x7B, top 2: a send and a receive buffer for dispatch and for combine; a dense model has none."""
    scenario = scenario_of("mixtral-8x7b", devices=8, global_batch_size=8, seq_len=4096)
    facts = recalibrated(Facts.of(scenario), expert_imbalance=1)
    found = broken_down(scenario, plan_row(8, tp=2, ep=8, dp=4), facts=facts).memory["dispatch_buffers"]
    assert found == pytest.approx(4 * (4096 / 2) * 2 * 4096 * 2)
    dense = scenario_of("llama-3-8b", devices=8, global_batch_size=8)
    assert broken_down(dense, plan_row(8, dp=8)).memory["dispatch_buffers"] == 0


def test_activations_are_those_of_the_chunks_alive() -> None:
    """Stage 0 of 1F1B keeps p micro-batches of its layers, the last stage one."""
    scenario = scenario_of("llama-3-8b", devices=4, global_batch_size=16)
    layer = one_layer(Facts.of(scenario))["dense_saved_bytes"]
    found = broken_down(scenario, plan_row(16, pp=4)).memory["activations"][0]
    assert found.tolist() == pytest.approx([8 * alive * float(layer[0]) for alive in (4, 3, 2, 1)])
    interleaved = broken_down(scenario, plan_row(16, pp=4, vpp=2)).memory["activations"][0]
    assert interleaved[0] == pytest.approx(4 * 11 * float(layer[0]))


def test_full_recompute_needs_room_for_the_layer_at_work() -> None:
    scenario = scenario_of("llama-3-8b", devices=4, global_batch_size=16)
    layer = one_layer(Facts.of(scenario))
    found = broken_down(scenario, plan_row(16, pp=4, recompute=2)).memory
    assert found["recompute_workspace"] == pytest.approx(
        float(layer["dense_saved_bytes"][0] - layer["boundary_bytes"][0])
    )
    assert found["activations"][0, 0] == pytest.approx(8 * 4 * float(layer["boundary_bytes"][0]))
    assert not broken_down(scenario, plan_row(16, pp=4)).memory["recompute_workspace"].any()


def test_zero_3_holds_the_layer_at_work_and_the_next_one_whole() -> None:
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=8)
    rows = [plan_row(8, dp=8, zero_stage=stage) for stage in (2, 3)]
    kept, gathered = broken_down(scenario, *rows).memory["gathered_parameters"][:, 0]
    assert kept == 0
    # The head is larger than a layer, and is fetched while the last one is at work.
    assert scenario.model.params.head > scenario.model.params.dense_layer
    assert gathered == pytest.approx(2 * (scenario.model.params.dense_layer + scenario.model.params.head))


def test_multi_token_prediction_keeps_a_layer_more_on_the_last_stage() -> None:
    scenario = scenario_of("deepseek-v3", devices=4, global_batch_size=16, seq_len=4096)
    plain = scenario.model_copy(update={"model": scenario.model.model_copy(update={"num_mtp_layers": 0})})
    with_mtp, without = (broken_down(case, plan_row(16, pp=4)).memory["activations"][0] for case in (scenario, plain))
    layer = float(one_layer(Facts.of(scenario))["moe_saved_bytes"][0])
    assert with_mtp - without == pytest.approx([0, 0, 0, layer])


def switched(**uses: bool) -> Facts:
    scenario = scenario_of(GPT, seq_len=2048).model_copy(update=uses)
    return recalibrated(Facts.of(scenario), activation_coefficient=1)


@pytest.mark.parametrize("t", [1, 8])
def test_scores_in_memory_add_what_the_published_formula_counts(t: int) -> None:
    """Korthikanti 2022, equation 2: a core that isn't fused saves ``5 a s^2 b / t`` more."""
    fused, unfused = (switched(fused_attention=fused) for fused in (True, False))
    more = [one_layer(facts, tp=t, micro_batch_size=4)["dense_saved_bytes"] for facts in (unfused, fused)]
    assert more[0] - more[1] == pytest.approx(5 * 96 * 2048**2 * 4 / t)


def test_without_sequence_parallelism_the_norm_regions_stay_whole() -> None:
    """Korthikanti 2022, equation 2 against 4: ``10 s b h`` stay whole, of which 2 are dropout masks."""
    cut, whole = (switched(sequence_parallel=used) for used in (True, False))
    saved = [one_layer(facts, tp=8)["dense_saved_bytes"] for facts in (whole, cut)]
    assert saved[0] - saved[1] == pytest.approx((10 - 2) * 2048 * 12288 * (1 - 1 / 8))


def test_every_second_product_is_kept_under_torchtitan() -> None:
    """Of Llama 3 8B, in elements: the input 4096, Q 4096, V 1024, attention's output 4096 and the gate 14336."""
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=8, seq_len=8192)
    facts = Facts.of(scenario.model_copy(update={"framework": load_framework("torchtitan")}))
    found = one_layer(recalibrated(facts, activation_coefficient=1))
    kept = 8192 * 2 * (4096 + 4096 + 1024 + 4096 + 14336)
    assert found["dense_selective_bytes"] == pytest.approx(kept)
    # The layer is one region: all of it is back at once.
    assert found["dense_back_bytes"] == pytest.approx(found["dense_saved_bytes"] - kept)
    named = one_layer(recalibrated(facts, activation_coefficient=1), recompute_modules=modules_code(["layernorm"]))
    assert named["dense_selective_bytes"] == pytest.approx(found["dense_saved_bytes"] - 8192 * 2 * 2 * 4096)
