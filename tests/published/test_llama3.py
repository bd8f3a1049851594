"""What Meta published on training Llama 3.1 405B with 8,192 tokens (arXiv 2407.21783, section 3.3.2 and table 4)."""

from __future__ import annotations

import pytest

from costmodel.flops import model_flops_per_token
from costmodel.predict import StagePrediction
from costmodel.scenario import Scenario
from costmodel.spec.plan import RECOMPUTES
from costmodel.stages import Layout, layers_per_chunk, stage_kinds
from tests.scenarios import broken_down, plan_row, scenario_of

SEQ_LEN = 8192
GLOBAL_BATCH_SIZE = 2048  # 16M tokens
PUBLISHED = {16384: 400e12, 8192: 430e12}  # devices -> FLOP/s per device


def llama_3_405b(devices: int, recompute: str = "none") -> tuple[Scenario, StagePrediction]:
    """tp 8, pp 16 and FSDP over the rest, which shards optimizer state and gradients but keeps the parameters; the
    pipeline is interleaved with one layer in a chunk.
    """
    scenario = scenario_of("llama-3.1-405b", "dgx-h100", devices, GLOBAL_BATCH_SIZE, SEQ_LEN)
    plan = plan_row(
        GLOBAL_BATCH_SIZE,
        tp=8,
        pp=16,
        vpp=8,
        dp=devices // 128,
        zero_stage=2,
        recompute=RECOMPUTES.index(recompute),
    )
    return scenario, broken_down(scenario, plan)


def flops_per_device(scenario: Scenario, prediction: StagePrediction, flops_per_token: float) -> float:
    tokens = scenario.workload.tokens_per_step
    return float(flops_per_token * tokens / (prediction.step_time_s[0] * scenario.devices))


@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("devices", sorted(PUBLISHED))
def test_published_speed_within_a_tenth_in_either_way_of_counting(devices: int, recompute: str) -> None:
    """The report does not say whether attention is among its FLOPs, so the prediction has to hold both ways."""
    scenario, prediction = llama_3_405b(devices, recompute)
    for per_token in (6 * scenario.model.params.total, model_flops_per_token(scenario.model, SEQ_LEN)):
        predicted = flops_per_device(scenario, prediction, per_token)
        assert predicted == pytest.approx(PUBLISHED[devices], rel=0.10)


def test_twice_the_devices_at_the_same_batch_lose_utilisation() -> None:
    """43 % MFU on 8,192 devices, 41 % on 16,384: half the micro-batches make the bubble twice as large."""
    found = {devices: llama_3_405b(devices) for devices in PUBLISHED}
    speed = {
        devices: flops_per_device(scenario, prediction, 6 * scenario.model.params.total)
        for devices, (scenario, prediction) in found.items()
    }
    assert 0.88 < speed[16384] / speed[8192] < 0.98
    share = {
        devices: float(prediction.time["bubble"][0] / prediction.step_time_s[0])
        for devices, (_, prediction) in found.items()
    }
    assert share[16384] == pytest.approx(2 * share[8192], rel=0.15)


@pytest.mark.parametrize("devices", sorted(PUBLISHED))
def test_the_published_plans_fit_the_devices_they_ran_on(devices: int) -> None:
    scenario, prediction = llama_3_405b(devices)
    assert prediction.peak_bytes[0] < scenario.cluster.accelerator.memory_bytes


def test_first_and_last_stage_hold_one_layer_less() -> None:
    """126 layers instead of 128, one less on each end (section 3.3.2); the plain layout gives that by itself."""
    chunks = layers_per_chunk(126, 16, 8, Layout.EVEN)
    assert chunks is not None
    assert [sum(device) for device in chunks] == [7, *[8] * 14, 7]
    assert chunks[0] == (0, *[1] * 7)
    assert chunks[-1] == (*[1] * 7, 0)
    whole = stage_kinds(126, 126, 16, 1, Layout.EVEN)
    assert whole is not None
    assert [stage.dense_layers for stage in whole] == [7, *[8] * 14, 7]
