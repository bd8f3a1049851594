"""Whether a run fits: into the devices and, with what it offloads, into the hosts; both as the search judges them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.model_catalog import load_model
from costmodel.runs.columns import Run
from costmodel.runs.prediction import RunPrediction
from costmodel.runs.predictions import predict_runs

GIB = 2**30
LLAMA_405B = Run(
    id="llama",
    framework="deepspeed",
    model_name="llama-3.1-405b",
    seq_len=512,
    accelerator="H200-141GB",
    devices=8,
    devices_per_node=8,
    precision="bf16",
    tp=1,
    pp=1,
    dp=8,
    zero_stage="3",
    micro_batch=1,
    global_batch=8,
    recompute="full",
    offload="optimizer on the CPU",
)
ON_A_NODE = "what is offloaded takes"
ON_A_DEVICE = "on its fullest stage"


def predicted(**changes: Any) -> RunPrediction:
    fields = {name: getattr(LLAMA_405B, name) for name in LLAMA_405B.__slots__} | changes
    return predict_runs([Run(**fields)])[0]


def test_what_the_hosts_can_not_hold_does_not_fit() -> None:
    """The moments, master weights and gradients of 405B parameters on one node, 4 bytes each."""
    there = load_cluster("dgx-h200").host_memory_bytes_per_node
    assert there is not None
    found = predicted()
    assert found.feasible is False
    assert ON_A_DEVICE not in found.reason
    needed = re.search(rf"{ON_A_NODE} ([0-9.]+) GiB on a node, a node of dgx-h200 has {there / GIB:.1f}", found.reason)
    assert needed is not None
    assert float(needed[1]) == pytest.approx(16 * load_model("llama-3.1-405b").params.total / GIB, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "short"),
    [
        ({"devices": 32, "dp": 32, "global_batch": 32}, set()),
        ({"accelerator": "H100-80GB"}, {ON_A_DEVICE, ON_A_NODE}),
        ({"accelerator": "H100-80GB", "offload": ""}, {ON_A_DEVICE}),
    ],
    ids=["four nodes", "neither", "devices"],
)
def test_each_memory_that_is_short_is_named(changes: dict[str, Any], short: set[str]) -> None:
    found = predicted(**changes)
    assert found.feasible is not bool(short)
    assert {what for what in (ON_A_DEVICE, ON_A_NODE) if what in found.reason} == short


def test_of_what_is_left_open_a_plan_is_taken_that_the_hosts_hold_too() -> None:
    """Unsharded, two replicas keep twice the state with their host: faster over slow links, had the host the room."""
    stated = {"framework": "megatron", "model_name": "llama-3.1-70b", "zero_stage": "0", "intra_node_bw_gbs": 64}
    stated |= {"global_batch": 512, "recompute": "full"}
    whole, twice = (predicted(**stated, tp=tp, dp=8 // tp) for tp in (8, 4))
    assert whole.feasible is True
    assert twice.feasible is False
    assert ON_A_DEVICE not in twice.reason
    assert twice.step_time_s < whole.step_time_s  # type: ignore[operator]
    assert predicted(**stated, tp=None, dp=None).step_time_s == whole.step_time_s


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"recompute": "full, every 126 layers"}, None),
        ({"recompute": "full, every 127 layers"}, 126),
        ({"recompute": "full, every 16 layers", "pp": 8, "dp": 1}, None),
        ({"recompute": "full, every 17 layers", "pp": 8, "dp": 1}, 16),
        ({"recompute": "full, every 64 layers", "pp": 8, "dp": 1, "layers": 5}, 1),
    ],
)
def test_an_interval_beyond_the_layers_is_said(changes: dict[str, Any], same: int | None) -> None:
    found = predicted(**changes)
    assert found.step_time_s is not None
    assert ("means the same as" in found.reason) == (same is not None)
    if same is not None:
        assert f"means the same as {same}: no chunk" in found.reason
