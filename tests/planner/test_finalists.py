"""The best plans of searches, executed piece by piece, take what the closed form says."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.facts import Facts
from costmodel.spec.plan import Plan
from costmodel.timeline.timeline import timeline_of
from planner.search.answer import answer_of
from planner.search.solve import Search
from tests.scenarios import scenario_of
from tests.searches import request_of

# (framework, question, pins).
SEARCHES: dict[str, tuple[str, tuple[Any, ...], tuple[str, ...]]] = {
    "llama-3-as-trained": ("megatron-core", ("llama-3.1-405b", "dgx-h100", 16384, 2048, 8192), ("tp=8", "pp=16")),
    "long-pipelines": ("megatron-core", ("llama-3.1-405b", "dgx-h100", 1024, 512, 8192), ("vpp=1", "tp=8")),
    "chunks-of-two-and-one": ("megatron-core", ("llama-3.1-70b", "dgx-a100-80gb", 256, 256, 4096), ("pp=4", "vpp=15")),
    "any-chunks": ("megatron-core", ("llama-3.1-70b", "dgx-h100", 128, 128, 8192), ("vpp=2..",)),
    "heavy-head": ("megatron-core", ("llama-3.1-8b", "dgx-h100", 32, 64, 8192), ("pp=4", "vpp=7")),
    "long-interleaved": (
        "megatron-core",
        ("llama-3.1-405b", "dgx-h100", 1024, 512, 8192),
        ("tp=4..8", "pp=16", "vpp=5,7"),
    ),
    "dense-chunk-first": ("megatron-core", ("deepseek-v2-lite", "dgx-h100", 16, 32, 4096), ("pp=4", "vpp=6")),
    "two-kinds-of-chunks": (
        "megatron-core",
        ("deepseek-v3", "h800-8x400g", 2048, 15360, 4096),
        ("tp=1..2", "pp=16", "ep=64", "vpp=2"),
    ),
    "experts-in-chunks": ("megatron-core", ("qwen3-30b-a3b", "dgx-h100", 16, 16, 4096), ("pp=4", "mbs=1", "vpp=11")),
    "even-chunks": ("megatron-core", ("llama-3.1-70b", "dgx-a100-80gb", 256, 256, 4096), ("pp=4", "vpp=2,4,5,10")),
    "odd-depths": ("megatron-core", ("llama-3.1-70b", "dgx-h100", 128, 128, 8192), ("pp=5,7,13,16", "vpp=1")),
    "odd-nodes": ("megatron-core", ("llama-3.1-70b", "dgx-h100", 488, 488, 8192), ("pp=2..", "vpp=1")),
    "latent-attention": (
        "megatron-core",
        ("deepseek-v3", "dgx-h100", 2048, 15360, 4096),
        ("tp=8", "cp=1", "pp=16", "ep=8..", "mbs=1", "vpp=1"),
    ),
    "experts": ("megatron-core", ("qwen3-30b-a3b", "dgx-h100", 16, 16, 4096), ("pp=4..", "mbs=1", "vpp=1")),
    "first-layer-dense": ("megatron-core", ("deepseek-v2-lite", "dgx-h100", 16, 32, 4096), ("pp=4", "vpp=1")),
    "by-cost-in-pcie-boxes": ("nanotron", ("llama-3.2-3b", "rtx4090-8", 8, 16, 4096), ("pp=4..",)),
    "zero-bubble-in-a-v": ("torchtitan", ("llama-3.1-8b", "dgx-h100", 32, 64, 4096), ("pp=4..", "schedule=zb_v")),
    "dualpipe-in-a-v": ("torchtitan", ("llama-3.1-70b", "dgx-h100", 64, 256, 4096), ("pp=8", "schedule=dualpipe_v")),
    "both-ways": ("hai-llm", ("llama-3.1-70b", "dgx-h100", 128, 256, 4096), ("pp=8..16", "schedule=dualpipe")),
    "few-micro-batches": ("deepspeed", ("llama-3.1-8b", "dgx-a100-40gb", 16, 4, 8192), ("pp=4..", "mbs=1")),
}


@pytest.mark.parametrize("name", list(SEARCHES))
def test_the_timeline_of_the_best_plans_agrees_with_their_predictions(name: str) -> None:
    framework, question, pins = SEARCHES[name]
    scenario = scenario_of(*question).model_copy(update={"framework": load_framework(framework)})
    request, facts = request_of(scenario, pins, top=3), Facts.of(scenario)
    plans = answer_of(request, facts, Search(request).run())["plans"]
    assert len(plans) == 3
    for entry in plans:
        plan = Plan.model_validate(entry["plan"])
        assert plan.pp > 1
        timeline = timeline_of(scenario, plan, facts, most_events=20_000)
        assert timeline.step_time_s == pytest.approx(entry["prediction"]["step_time_s"], rel=0.05)
