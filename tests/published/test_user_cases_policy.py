"""What people asked of a planner in words, where the words state something about its predictions or its answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costmodel.calibration.calibration import load_calibration
from costmodel.catalog.model_catalog import load_model
from costmodel.facts import Facts
from costmodel.layers import total
from costmodel.memory import stage_params
from costmodel.predict import StagePrediction
from costmodel.scenario import Scenario
from costmodel.spec.plan import RECOMPUTES
from costmodel.stages import Layout
from costmodel.table import PlanTable, stage_table
from costmodel.term_outputs import evaluate_terms
from tests.published.user_cases import GB, REPORTS, check_of, predicted, reported, scenario_for, tokens_per_s, verdict
from tests.scenarios import broken_down, plan_row, priced, scenario_of

STATE = ("parameters", "gradients", "optimizer")
ACTIVATIONS = ("activations", "recompute_workspace", "logits")
EXPERTS = ["qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3"]


def bytes_of(full: StagePrediction, *terms: str, plan: int = 0) -> float:
    """Bytes of some terms on the fullest stage of a plan."""
    worst = int(total(full.memory)[plan].argmax())
    return sum(float(full.memory[term][plan, worst]) for term in terms)


def zero_3(model: str, dp: int, recompute: str, seq_len: int) -> StagePrediction:
    """One sequence on each replica under DeepSpeed's stage 3."""
    scenario = scenario_for(
        model,
        framework="deepspeed",
        cluster="a800-8x200g",
        devices=dp,
        batch=dp,
        seq_len=seq_len,
        calibration=load_calibration(),
    )
    return broken_down(scenario, plan_row(dp, dp=dp, zero_stage=3, recompute=RECOMPUTES.index(recompute)))


@reported("uc-016")
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_long_sequences_are_bound_by_activations_which_more_replicas_do_not_shrink(recompute: str) -> None:
    """One model of the two that DPO holds; the second only adds to what overflows."""
    for seq_len in REPORTS["uc-016"]["config"]["seq"]:
        at_128, at_256 = (zero_3("qwen2.5-72b-instruct", dp, recompute, seq_len) for dp in (128, 256))
        assert bytes_of(at_128, *ACTIVATIONS) > bytes_of(at_128, *STATE)
        assert bytes_of(at_256, *ACTIVATIONS) == bytes_of(at_128, *ACTIVATIONS)


@reported("uc-105")
@pytest.mark.parametrize("model", ["pythia-6.9b", "llama-2-7b"])
def test_activations_do_not_depend_on_data_parallelism(model: str) -> None:
    at_2, at_4 = (zero_3(model, dp, "none", 2048) for dp in REPORTS["uc-105"]["cluster"]["gpus"])
    assert bytes_of(at_2, *ACTIVATIONS) == bytes_of(at_4, *ACTIVATIONS) > 0
    assert bytes_of(at_4, *STATE) == pytest.approx(bytes_of(at_2, *STATE) / 2)


@reported("uc-031")
@pytest.mark.parametrize(("model", "chunks"), [("llama-3-70b", (2, 4, 5, 10, 20)), ("gpt-neox-20b", (11,))])
@pytest.mark.parametrize("recompute", RECOMPUTES)
def test_more_chunks_are_no_memory_lever(model: str, chunks: tuple[int, ...], recompute: str) -> None:
    scenario = scenario_of(model, devices=32, global_batch_size=64, seq_len=8192)
    plans = [plan_row(64, tp=4, pp=4, dp=2, vpp=vpp, recompute=RECOMPUTES.index(recompute)) for vpp in (1, *chunks)]
    plain, *interleaved = priced(scenario, *plans).peak_bytes
    assert min(interleaved) >= plain
    reserve = 1 - scenario.usable_bytes / scenario.cluster.accelerator.memory_bytes
    assert reserve >= check_of("uc-031")["reserve_fraction_min"]


@reported("uc-047")
def test_a_healthy_run_is_faster_and_does_not_fit() -> None:
    """A batch of 128 sequences: the thread's few micro-batches are what made it slow. 6 FLOPs a parameter and token."""
    run = {
        "framework": "Megatron-LM",
        "model_name": "llama-3.1-70b",
        "accelerator": "A100-80GB",
        "devices": 16,
        "tp": 8,
        "pp": 2,
        "dp": 1,
        "cp": 1,
        "micro_batch": 1,
        "global_batch": 128,
        "seq_len": 4096,
        "recompute": "full",
    }
    flops = 6 * load_model("llama-3.1-70b").params.total * tokens_per_s("uc-047", **run)
    assert flops > 80e12
    assert predicted("uc-047", **run).feasible is False


@reported("uc-085")
@pytest.mark.parametrize("framework", ["nanotron", "megatron-core", "torchtitan"])
def test_a_stage_without_a_layer_is_refused(framework: str) -> None:
    """A tiny model with a big vocabulary: the loss outweighs a layer, and would get a stage of its own."""
    tiny = {"num_layers": 2, "hidden_size": 512, "ffn_hidden_size": 1024, "num_heads": 8, "num_kv_heads": 8}
    model = load_model("llama-3-8b").model_copy(update=tiny)
    scenario = scenario_for(model, framework=framework, devices=8, batch=32)
    # torchtitan's pipelines reduce sharded gradients once a step.
    sharding = {"zero_stage": 3, "gradient_sync": 0} if framework == "torchtitan" else {}
    axes = {"pp": 2, "dp": 4, **sharding}
    assert verdict(scenario, **axes, layout=Layout.LOSS_COUNTS) == {"every_stage_has_a_layer"}
    assert verdict(scenario, **axes, layout=Layout.EVEN) == set()


@reported("uc-101")
@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize(("layers", "pp"), [(9, 4), (10, 4), (30, 4)])
def test_memory_is_that_of_the_heaviest_stage(layers: int, pp: int, layout: Layout) -> None:
    """In the form that ranks plans, which doesn't look at every stage, too."""
    model = load_model("llama-3-8b").model_copy(update={"num_layers": layers})
    scenario = scenario_of(model, devices=pp, global_batch_size=16)
    plan = plan_row(16, pp=pp, layout=layout)
    stages = total(broken_down(scenario, plan).memory)[0]
    assert priced(scenario, plan).peak_bytes[0] == pytest.approx(stages.max())
    assert stages.max() > 1.05 * stages.mean()


def params_of(scenario: Scenario, *plans: dict[str, int]) -> tuple[list[float], list[float]]:
    """(dense, expert) parameters on a device of each plan."""
    facts, table = Facts.of(scenario), PlanTable.of_rows(plans)
    dense, expert = stage_params(facts, evaluate_terms(facts, table), stage_table(scenario, table))
    return dense[:, 0].tolist(), expert[:, 0].tolist()


@reported("uc-102")
@pytest.mark.parametrize("model", EXPERTS)
def test_experts_have_divisors_of_their_own(model: str) -> None:
    """tp cuts what isn't an expert, ep * etp the experts; expert state is sharded over what is left of the ranks."""
    scenario = scenario_of(model, devices=16, global_batch_size=64)
    plans = [
        plan_row(64, tp=tp, dp=16 // tp, ep=ep, etp=etp)
        for tp, ep, etp in ((2, 4, 1), (4, 4, 1), (2, 8, 1), (2, 4, 2), (4, 8, 1))
    ]
    dense, expert = params_of(scenario, *plans)
    assert dense[0] == dense[2] == dense[3] > dense[1] == dense[4]
    assert expert[0] == expert[1] == 2 * expert[2] == 2 * expert[3] == 2 * expert[4]
    facts, table = Facts.of(scenario), PlanTable.of_rows(plans)
    assert evaluate_terms(facts, table)["expert_shards"].tolist() == [4, 4, 2, 2, 2]


@reported("uc-103")
@pytest.mark.parametrize("model", EXPERTS)
@pytest.mark.parametrize("recompute", RECOMPUTES)
def test_activations_do_not_depend_on_expert_parallelism(model: str, recompute: str) -> None:
    scenario = scenario_of(model, devices=8, global_batch_size=64)
    plans = [plan_row(64, dp=8, ep=ep, recompute=RECOMPUTES.index(recompute)) for ep in (1, 2, 4, 8)]
    full = broken_down(scenario, *plans)
    kept = [bytes_of(full, *ACTIVATIONS, "dispatch_buffers", plan=index) for index in range(len(plans))]
    assert kept == [kept[0]] * len(plans)


@reported("uc-113")
@pytest.mark.parametrize("model", ["llama-3.2-1b", "mpt-7b"])
def test_the_network_is_an_input(model: str) -> None:
    """Per device in Gbit/s: 400 of InfiniBand, then a node's 100, 25 and 10 of Ethernet for eight devices."""
    run: dict[str, Any] = {
        "framework": "llm-foundry",
        "model_name": model,
        "accelerator": "A100-80GB",
        "devices": 16,
        "devices_per_node": 8,
        "tp": 1,
        "pp": 1,
        "dp": 16,
        "zero_stage": "3",
        "micro_batch": 1,
        "global_batch": 16,
        "seq_len": 2048,
        "recompute": "full",
    }
    rates = (400.0, 12.5, 3.125, 1.25)
    speeds = [tokens_per_s("uc-113", **run, inter_node_bw_gbps_per_device=rate) for rate in rates]
    assert (np.diff(speeds) < 0).all()
    assert speeds[0] > 2 * speeds[-1]


@reported("uc-122")
def test_7b_with_two_long_sequences_is_at_risk_without_recompute() -> None:
    scenario = scenario_of("llama-2-7b", "dgx-a100-80gb", devices=8, global_batch_size=16, seq_len=4096)
    full = broken_down(scenario, plan_row(16, dp=8, micro_batch_size=2))
    params = scenario.model.params.total
    assert bytes_of(full, *STATE) / params == pytest.approx(7.5)
    assert bytes_of(full, *STATE) / GB == pytest.approx(50.5, abs=0.5)
    assert full.peak_bytes[0] >= 80 * GB
    assert full.peak_bytes[0] > scenario.usable_bytes


@reported("uc-124")
@pytest.mark.parametrize("model", ["llama-3-70b", "llama-3.1-70b"])
def test_weights_and_state_of_70b(model: str) -> None:
    scenario = scenario_of(model, devices=1, global_batch_size=1)
    full = broken_down(scenario, plan_row(1, dp=1))
    assert bytes_of(full, "parameters") / GB == pytest.approx(141, abs=1)
    assert 1.10e12 <= bytes_of(full, *STATE) <= 1.275e12
