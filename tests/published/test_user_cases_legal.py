"""Plans that people were told, or feared, a framework would refuse, and that it takes."""

from __future__ import annotations

import pytest

from tests.published.user_cases import reported, scenario_for, verdict


@reported("uc-081")
@pytest.mark.parametrize("model", ["llama-3-8b", "llama-2-70b", "qwen3-30b-a3b"])
def test_four_micro_batches_fill_four_stages_of_two_chunks(model: str) -> None:
    """The stricter rule that people pass on, a multiple of pp * vpp, isn't Megatron's."""
    scenario = scenario_for(model, devices=4, batch=4)
    assert verdict(scenario, pp=4, vpp=2, num_microbatches=4) == set()


@reported("uc-088")
@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3-235b-a22b"])
def test_expert_parallelism_may_exceed_data_parallelism(model: str) -> None:
    scenario = scenario_for(model, devices=512, batch=512)
    for ep in (16, 64):
        assert verdict(scenario, tp=2, pp=8, cp=2, dp=16, ep=ep) == set()


@reported("uc-133")
@pytest.mark.parametrize("version", ["0.9", "0.16"])
def test_data_parallelism_can_double_at_the_same_batch(version: str) -> None:
    for dp, accumulate in ((8, 2), (16, 1)):
        scenario = scenario_for("llama-3-8b", version=version, devices=dp, batch=16)
        assert verdict(scenario, dp=dp, num_microbatches=accumulate) == set()
