"""Terms of memory that are told apart from others, and the moment of the step that needs the most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.facts import Facts
from costmodel.layers import total
from costmodel.predict import StagePrediction
from costmodel.scenario import Scenario
from costmodel.terms.activations import RECOMPUTE_FULL
from tests.published.user_cases import GIB, REPORTS
from tests.scenarios import broken_down, plan_row, recalibrated, scenario_of


def priced(scenario: Scenario, facts: Facts | None = None, **axes: Any) -> StagePrediction:
    return broken_down(scenario, plan_row(scenario.workload.global_batch_size, **axes), facts=facts)


def first(found: StagePrediction, name: str) -> float:
    return float(found.memory[name][0, 0])


@pytest.mark.parametrize("model", ["llama-3.2-1b", "mixtral-8x7b", "deepseek-v3", "qwen3-next-80b-a3b"])
@pytest.mark.parametrize("framework", ["megatron-core", "accelerate"])
def test_terms_sum_to_the_peak(model: str, framework: str) -> None:
    scenario = scenario_of(model, devices=32, global_batch_size=32, seq_len=4096)
    scenario = scenario.model_copy(update={"framework": load_framework(framework)})
    for recompute in range(3):
        found = priced(scenario, dp=32, recompute=recompute, zero_stage=3)
        np.testing.assert_allclose(total(found.memory).max(axis=-1), found.peak_bytes, rtol=1e-12)
        assert all((term >= 0).all() for term in found.memory.values())


@pytest.mark.parametrize("recompute", [0, 1, RECOMPUTE_FULL])
def test_hot_experts_are_what_an_even_routing_would_not_need(recompute: int) -> None:
    scenario = scenario_of("mixtral-8x7b", devices=64, global_batch_size=64, seq_len=4096)
    facts, axes = Facts.of(scenario), {"pp": 4, "dp": 16, "ep": 8, "recompute": recompute}
    hot, even = (priced(scenario, recalibrated(facts, expert_imbalance=by), **axes) for by in (1.5, 1.0))
    assert first(even, "hot_experts") == 0.0
    for name in ("activations", "dispatch_buffers"):
        np.testing.assert_allclose(hot.memory[name], even.memory[name], rtol=1e-9)
    more = total(hot.memory) - total(even.memory) - hot.memory["recompute_workspace"]
    np.testing.assert_allclose(hot.memory["hot_experts"], more + even.memory["recompute_workspace"], rtol=1e-6)
    assert first(hot, "hot_experts") > 0.0
    dense = scenario_of("llama-3-8b", devices=8, global_batch_size=8)
    assert first(priced(dense, dp=8), "hot_experts") == 0.0


def test_buffers_of_communicators_are_a_part_of_what_is_measured_beside_state_and_activations() -> None:
    scenario = scenario_of("llama-3-8b", devices=64, global_batch_size=64)
    facts = Facts.of(scenario)
    alone, many = priced(scenario, dp=1), priced(scenario, tp=2, cp=2, pp=2, dp=8)
    assert first(alone, "comm_buffers") == 0.0
    assert first(many, "comm_buffers") == pytest.approx(4 * float(facts.cal.communicator_bytes))
    for found in (alone, many):
        assert first(found, "comm_buffers") + first(found, "overhead") == pytest.approx(float(facts.cal.overhead_bytes))
    huge = recalibrated(facts, communicator_bytes=1e12)
    assert first(priced(scenario, huge, tp=2, dp=32), "overhead") == 0.0


def test_the_optimizer_s_step_can_be_the_fullest_moment() -> None:
    """PyTorch's AdamW takes the roots of all second moments at once: 4 bytes a parameter, when activations are gone."""
    scenario = scenario_of("llama-3-8b", devices=2, global_batch_size=2, seq_len=512)
    scenario = scenario.model_copy(update={"framework": load_framework("accelerate")})
    short = priced(scenario, dp=2, zero_stage=3, recompute=RECOMPUTE_FULL)
    owned = float(scenario.model.params.total) / 2
    state = sum(first(short, name) for name in ("parameters", "gradients", "optimizer", "comm_buffers", "overhead"))
    assert first(short, "optimizer_step") > 0.0
    assert float(short.peak_bytes[0]) == pytest.approx(state + 4.0 * owned, rel=0.01)
    long = scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"seq_len": 32768})})
    assert first(priced(long, dp=2, zero_stage=3), "optimizer_step") == 0.0
    fused = scenario.model_copy(update={"framework": load_framework("torchtitan")})
    assert first(priced(fused, dp=2, zero_stage=3, recompute=RECOMPUTE_FULL), "optimizer_step") == 0.0


@pytest.mark.parametrize(("pp", "copies"), [(1, 1), (2, 2)])
def test_a_tied_table_is_there_once_and_once_more_at_the_end_of_a_pipeline(pp: int, copies: int) -> None:
    scenario = scenario_of("llama-3.2-1b", devices=8, global_batch_size=8)
    found = priced(scenario, pp=pp, dp=1)
    assert scenario.model.tie_word_embeddings
    table, total_params = scenario.model.params.embedding, scenario.model.params.total
    held = float(found.memory["parameters"][0].sum()) / 2.0
    assert held == pytest.approx(total_params + (copies - 1) * table, rel=2e-3)


@pytest.mark.parametrize("report", ["uc-057"])
def test_logits_in_32_bits_with_their_gradient_are_over_three_times_those_in_16(report: str) -> None:
    """Megatron's loss keeps 6.5 bytes a logit: what was a quarter of the device in 16 bits alone is most of it."""
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=8, seq_len=REPORTS[report]["config"]["tokens"])
    logits = first(priced(scenario, dp=8, recompute=RECOMPUTE_FULL), "logits") / GIB
    narrow = REPORTS[report]["observed"]["logits_gib_bf16"]
    boundary = 2 * 2 * 81920 * 4096 / GIB
    assert logits - boundary == pytest.approx(6.5 / 2 * narrow, rel=0.01)


def test_the_pool_and_what_lies_outside_of_it_come_on_top() -> None:
    """llama-recipes on 16 A100: 63 GB reserved, 59 GB peak active (llama-cookbook issue, the calibration's row)."""
    parameters = scenario_of("llama-3-8b").resolved.parameters
    outside = float(parameters.context_bytes)
    assert parameters.on_device(59e9) - outside == pytest.approx(63e9, rel=0.03)


@pytest.mark.parametrize(("zero_stage", "dp", "bytes_each"), [(0, 8, 6.0), (1, 8, 4.0), (0, 1, 4.0)])
def test_ddp_s_buckets_lie_beside_the_gradients_of_nanotron(zero_stage: int, dp: int, bytes_each: float) -> None:
    """It wraps the model in DDP where several replicas shard nothing, and adds up 16-bit gradients in 32 bits."""
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=8)
    scenario = scenario.model_copy(update={"framework": load_framework("nanotron")})
    found = first(priced(scenario, dp=dp, zero_stage=zero_stage), "gradients")
    assert found == pytest.approx(bytes_each * scenario.model.params.total, rel=1e-3)


def test_parameters_that_are_quantised_alone_have_no_16_bit_form() -> None:
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=8, precision="fp8")
    both, alone = (
        priced(scenario.model_copy(update={"framework": load_framework(name)}), dp=8)
        for name in ("megatron-core", "nemo")
    )
    tables = 2.0 * 2.0 * scenario.model.params.embedding
    assert first(alone, "parameters") == pytest.approx(tables, rel=1e-3)
    assert first(both, "parameters") == pytest.approx(2.0 * scenario.model.params.total, rel=1e-3)
    assert first(alone, "weight_copies") == first(both, "weight_copies") > 0.0


def test_internevo_s_step_has_gradients_twice_in_32_bits_and_roots_of_moments() -> None:
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=8, seq_len=512)
    scenario = scenario.model_copy(update={"framework": load_framework("internevo")})
    found = priced(scenario, dp=1, tp=1, zero_stage=0, recompute=RECOMPUTE_FULL)
    state = sum(first(found, name) for name in ("parameters", "gradients", "optimizer", "comm_buffers", "overhead"))
    assert float(found.peak_bytes[0]) == pytest.approx(state + 12.0 * scenario.model.params.total, rel=1e-3)
