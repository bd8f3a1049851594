"""Plans that people reported on: refused or running under a framework, and what the rules say of them.

Sizes that a report doesn't give are those of a model of the catalog that has what the report is about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.catalog.model_catalog import load_model
from costmodel.rules import broken
from costmodel.spec.plan import CP_COMM_TYPES
from tests import scenarios
from tests.scenarios import plan_row


@dataclass(frozen=True, kw_only=True)
class Report:
    """A plan on so many devices, and the rule of ours that has to say no; None where it ran."""

    source: str
    framework: tuple[str, str | None]
    devices: int
    plan: dict[str, int]
    rule: str | None
    model: str = "llama-3-8b"
    changes: dict[str, Any] = field(default_factory=dict)
    batch: int = 64
    seq_len: int = 4096


REPORTS = [
    Report(
        source="github.com/modelscope/ms-swift/issues/8219: 2 KV heads on tp 8, refused by Megatron-Core 0.15",
        framework=("megatron-core", "0.15"),
        changes={"num_kv_heads": 2},
        devices=8,
        plan={"tp": 8, "dp": 1},
        rule="kv_heads_divisible_by_tp",
    ),
    Report(
        source="the same, accepted by 0.16",
        framework=("megatron-core", "0.16"),
        changes={"num_kv_heads": 2},
        devices=8,
        plan={"tp": 8, "dp": 1},
        rule=None,
    ),
    Report(
        source="github.com/pytorch/torchtitan/issues/2574: 2 KV heads on tp 4, crash",
        framework=("torchtitan", "0.2"),
        changes={"num_kv_heads": 2},
        devices=8,
        plan={"tp": 4, "dp": 2, "zero_stage": 3},
        rule="kv_heads_divisible_by_tp",
    ),
    Report(
        source="github.com/pytorch/torchtitan/pull/4258: ep has to divide dp_shard * cp * tp",
        framework=("torchtitan", "2026-08"),
        model="mixtral-8x7b",
        changes={"num_experts": 9},
        devices=8,
        plan={"tp": 2, "dp": 4, "ep": 3, "zero_stage": 3},
        rule="expert_mesh_divides_shards",
    ),
    Report(
        source="github.com/pytorch/torchtitan/pull/4794: experts are no longer cut by tp",
        framework=("torchtitan", "2026-09"),
        model="mixtral-8x7b",
        devices=16,
        plan={"tp": 4, "dp": 4, "ep": 2, "zero_stage": 3},
        rule="ep_covers_tp",
    ),
    Report(
        source="github.com/THUDM/slime/issues/1818: etp * ep * pp = 16 on 8 devices",
        framework=("megatron-core", None),
        model="mixtral-8x7b",
        devices=8,
        plan={"pp": 2, "dp": 4, "ep": 8},
        rule="expert_mesh_divides_world",
    ),
    Report(
        source="github.com/NVIDIA/Megatron-LM/issues/5958: ep 32 with cp 16 and dp 2 runs, ep may exceed dp",
        framework=("megatron-core", None),
        model="qwen3-30b-a3b",
        devices=32,
        seq_len=65536,
        plan={"cp": 16, "dp": 2, "ep": 32},
        rule=None,
    ),
    Report(
        source="github.com/NVIDIA-NeMo/RL/pull/1126: interleaving needs micro-batches in multiples of pp",
        framework=("nemo", None),
        devices=8,
        batch=12,
        plan={"pp": 8, "dp": 1, "vpp": 2},
        rule="microbatches_divisible_by_pp",
    ),
    Report(
        source="github.com/NVIDIA-BioNeMo/bionemo-recipes/issues/286: not in multiples of pp * vpp",
        framework=("megatron-bridge", None),
        devices=4,
        batch=4,
        plan={"pp": 4, "dp": 1, "vpp": 2},
        rule=None,
    ),
    Report(
        source="github.com/OpenRLHF/OpenRLHF/issues/346: 256 sequences on 7 devices",
        framework=("deepspeed", None),
        devices=7,
        batch=256,
        plan={"dp": 7, "micro_batch_size": 2, "zero_stage": 3},
        rule="batch_divisible",
    ),
    Report(
        source="github.com/huggingface/transformers/issues/27299: fewer sequences than ranks of ZeRO",
        framework=("deepspeed", None),
        devices=8,
        batch=4,
        plan={"dp": 8, "zero_stage": 3, "num_microbatches": 1},
        rule="batch_divisible",
    ),
    Report(
        source="github.com/huggingface/trl/pull/3994: Accelerate cuts the sequence into 2 * cp chunks",
        framework=("accelerate", None),
        devices=8,
        seq_len=4098,
        plan={"cp": 2, "dp": 4, "zero_stage": 3},
        rule="sequence_divisible_by_cp",
    ),
    Report(
        source="github.com/huggingface/trl/pull/3994: 16384 tokens on cp 2 run",
        framework=("accelerate", None),
        devices=8,
        seq_len=16384,
        plan={"cp": 2, "dp": 4, "zero_stage": 3},
        rule=None,
    ),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.source.partition(":")[0])
def test_what_people_reported(report: Report) -> None:
    model = load_model(report.model)
    experts = report.changes.get("num_experts")
    if experts:
        assert model.moe is not None
        model = model.model_copy(update={"moe": model.moe.model_copy(update={"num_experts": experts})})
    else:
        model = model.model_copy(update=report.changes)
    scenario = scenarios.scenario_of(
        model, "dgx-h100", report.devices, report.batch, report.seq_len, calibration=scenarios.UNCALIBRATED
    )
    scenario = scenario.model_copy(update={"framework": load_framework(*report.framework)})
    exchange = scenario.framework.cp_comm_types
    row = plan_row(report.batch, **report.plan)
    if row["cp"] > 1:
        row["cp_comm_type"] = CP_COMM_TYPES.index(exchange[0])
    found = {rule.name for rule, _ in broken(scenario, row)}
    assert report.rule in found if report.rule else found == set(), found
