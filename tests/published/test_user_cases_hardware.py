"""What a network or a device does to the speed of people's runs; what a thread leaves open is said beside each."""

from __future__ import annotations

from tests.published.user_cases import REPORTS, check_of, reported, seconds, tokens_per_s

# BLOOM's own plan (arXiv 2211.05100, section 3.4) on 384 A100; 80B parameters of any shape, a sequence on each device.
NETWORK = {"framework": "DeepSpeed", "accelerator": "A100-80GB", "devices": 384, "seq_len": 2048, "recompute": "full"}
ZERO_3_80B = {"n_params_b": 80, "tp": 1, "pp": 1, "dp": 384, "zero_stage": "3", "micro_batch": 1, "global_batch": 384}
BLOOM = {
    "framework": "Megatron-DeepSpeed",
    "model_name": "bloom-176b",
    "tp": 4,
    "pp": 12,
    "dp": 8,
    "zero_stage": "1",
    "micro_batch": 2,
    "global_batch": 2048,
}


@reported("uc-111")
def test_a_pipeline_on_the_slower_network_beats_sharded_parameters_on_the_faster() -> None:
    """FLOPs per device, 6 per parameter and token; a node's bandwidth is shared by its 8 devices."""
    work = []
    for plan, own, params_b in zip(REPORTS["uc-111"]["config"], (ZERO_3_80B, BLOOM), (80, 176), strict=True):
        run = NETWORK | own | {"inter_node_bw_gbps_per_device": plan["net_gbps"] / 8}
        work.append(6 * params_b * tokens_per_s("uc-111", **run))
    check = check_of("uc-111")
    assert work[check["better"]] > work[check["worse"]]


@reported("uc-112")
def test_a_second_node_slows_sharded_parameters_down() -> None:
    """A sequence of 2,048 on each device; the network is that of the catalog's A10 cluster, as the thread says none."""
    qwen = {
        "framework": "DeepSpeed",
        "layers": 28,
        "hidden": 1536,
        "ffn_hidden": 8960,
        "heads": 12,
        "kv_heads": 2,
        "vocab": 151936,
        "tied_embeddings": True,
        "accelerator": "A10",
        "devices_per_node": 2,
        "tp": 1,
        "pp": 1,
        "zero_stage": "3",
        "micro_batch": 1,
        "seq_len": 2048,
    }
    one, two = (seconds("uc-112", **qwen, devices=count, dp=count, global_batch=count) for count in (2, 4))
    low, high = check_of("uc-112")["range"]
    assert low <= two / one <= high


@reported("uc-060")
def test_speed_of_1b_on_eight_turing_cards() -> None:
    """Four sequences of 2,048 a device, as the named configuration has them; FLOPs counted as GPT-NeoX does, 8 N."""
    run = {
        "framework": "gpt-neox",
        "n_params_b": 1,
        "accelerator": "RTX8000",
        "devices": 8,
        "tp": 1,
        "pp": 1,
        "dp": 8,
        "micro_batch": 4,
        "global_batch": 32,
        "seq_len": 2048,
        "precision": "fp16",
        "recompute": "full",
    }
    low, high = check_of("uc-060")["range"]
    assert low <= 8 * tokens_per_s("uc-060", **run) / 1000 <= high
