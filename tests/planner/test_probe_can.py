"""What the probe refuses, and that whoever asks needs no torch."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.spec.plan import Plan
from planner.profiling.probe.can import ACCOUNTED, CantProbe, as_run, check_can, notes, refusals
from tests.planner.probe_jobs import job

_V = {"pp": 2, "vpp": 2, "micro_batch_size": 2, "schedule": "zb_v"}


def test_every_field_of_a_plan_is_accounted_for() -> None:
    assert set(Plan.model_fields) == ACCOUNTED


@pytest.mark.parametrize(
    ("axes", "field"),
    [
        ({"tp": 4}, "tp"),  # 2 heads of keys and values
        ({"tp": 2, "dp": 2, "zero_stage": 1}, "zero_stage"),
        ({"dp": 4, "zero_stage": 1, "dp_replicate": 2, "dp_shard": 2}, "dp_replicate"),
        ({"dp": 2, "zero_plus": ("qwz",)}, "zero_plus"),
        ({"dp": 2, "zero_stage": 3, "fsdp_prefetch": 0}, "fsdp_prefetch"),
        ({"dp": 2, "zero_stage": 2, "reshard_after": "step"}, "reshard_after"),
        ({"pp": 2, "dp": 2, "micro_batch_size": 1, "gradient_sync": "microbatch"}, "gradient_sync"),
        ({"offload": "optimizer"}, "offload"),
        ({"cp": 2}, "cp_comm_type"),
        ({"cp": 2, "cp_comm_type": "a2a"}, "cp_a2a_degree"),
        ({"pp": 2, "schedule": "zb_h1"}, "schedule"),
        ({"pp": 2, "micro_batch_size": 8}, "num_microbatches"),
        ({"pp": 2, "vpp": 2, "micro_batch_size": 2}, "schedule"),
        ({"pp": 2, "micro_batch_size": 2, "schedule": "interleaved_1f1b"}, "vpp"),
        (_V | {"recompute": "full"}, "recompute"),
        (_V | {"dp": 2, "micro_batch_size": 1}, "zero_stage"),
        (_V | {"dp": 2, "micro_batch_size": 1, "zero_stage": 3}, "zero_stage"),
        (
            {"recompute": "selective", "recompute_modules": ("moe_act",), "framework": "megatron-core"},
            "recompute_modules",
        ),
        ({"recompute": "full", "recompute_interval": 2, "dp": 2, "zero_stage": 3}, "recompute_interval"),
        ({"precision": "fp16"}, "precision"),
        ({"optimizer": "muon"}, "optimizer"),
        ({"precision": "bf16", "gradient_dtype": "bf16"}, "gradient_dtype"),
    ],
)
def test_what_it_cant_do_is_named_by_its_field(axes: dict[str, Any], field: str) -> None:
    of = job(**axes)
    found = refusals(of.scenario, of.plan)
    assert [refusal.field for refusal in found] == [field]
    with pytest.raises(CantProbe, match=field) as caught:
        check_can(of.scenario, of.plan)
    assert pickle.loads(pickle.dumps(caught.value)).refusals == found


@pytest.mark.parametrize(
    ("model", "field"),
    [("deepseek-v3", "model.mla"), ("nemotron-h-56b", "model.hybrid"), ("gpt-oss-20b", "model.attention_sinks")],
)
def test_models_that_it_has_no_modules_for_are_refused(model: str, field: str) -> None:
    of = job()
    scenario = of.scenario.model_copy(update={"model": load_model(model)})
    assert field in [refusal.field for refusal in refusals(scenario, of.plan)]


def test_experts_and_norms_over_all_heads_are_not_cut() -> None:
    of = job(model="moe", tp=2)
    assert [refusal.field for refusal in refusals(of.scenario, of.plan)] == ["tp", "model.qk_norm"]


def test_what_runs_otherwise_is_said() -> None:
    of = job(tp=2, dp=2, framework="megatron-core")
    assert [note.split()[0] for note in notes(of.scenario, of.plan)] == ["PyTorch's", "tensor"]
    assert of.scenario.fused_pointwise
    assert not as_run(of.scenario).fused_pointwise


def test_asking_needs_no_torch() -> None:
    code = "import sys, planner.profiling.probe.can, planner.profiling.probe.job; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
