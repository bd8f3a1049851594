"""Pools of random legal plans of many models, clusters, frameworks and precisions: what laws are held against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from costmodel.arrays import Ints
from costmodel.catalog.framework_catalog import load_framework
from costmodel.facts import Facts
from costmodel.rules import legal_mask
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.options import MOE_DISPATCHERS, OFFLOADS, RESHARD_AFTER
from costmodel.spec.plan import CP_COMM_TYPES, SCHEDULES
from costmodel.stages import Layout, layers_per_chunk
from costmodel.table import AXES, PlanTable
from costmodel.usual_options import usual_codes
from tests.scenarios import divisors, scenario_of

# Model, cluster, devices, batch, sequence, framework, precision: dense, experts, latent attention, hybrids of both;
# switched domains, racks, tori, PCIe, Ethernet; every rule set, fused and unfused attention, 16, 8 and 4 bits.
ASKED: dict[str, tuple[str, str, int, int, int, str, str]] = {
    "dense": ("llama-3-8b", "dgx-h100", 64, 256, 8192, "megatron-core", "bf16"),
    "dense-fp8": ("llama-3.1-70b", "dgx-h100", 128, 512, 8192, "megatron-core", "fp8"),
    "dense-tied": ("gemma-2-9b", "dgx-a100-80gb", 64, 256, 8192, "megatron-core", "bf16"),
    "dense-fsdp": ("llama-2-13b", "p4d.24xlarge", 64, 256, 4096, "pytorch-fsdp", "bf16"),
    "dense-zero": ("qwen2.5-32b", "dgx-h200", 64, 256, 4096, "deepspeed", "bf16"),
    "dense-amd": ("llama-3.1-8b", "mi300x-8x400g", 64, 256, 8192, "torchtitan", "bf16"),
    "dense-torus": ("gemma-3-27b-it", "tpu-v5p", 64, 256, 8192, "maxtext", "bf16"),
    "dense-cores": ("llama-3.1-8b", "trn2.48xlarge", 64, 256, 4096, "neuronx", "bf16"),
    "dense-ethernet": ("qwen2.5-7b", "hls-gaudi3", 64, 256, 4096, "accelerate", "bf16"),
    "dense-pcie": ("llama-3.2-3b", "a100-pcie-8x200g", 32, 96, 4096, "colossalai", "bf16"),
    "dense-first-stage": ("olmo-2-7b", "dgx-h100", 64, 256, 4096, "nanotron", "bf16"),
    "dense-unfused": ("gpt-neox-20b", "dgx-a100-40gb", 96, 768, 2048, "megatron-lm-2021", "fp16"),
    "experts": ("mixtral-8x7b", "dgx-a100-80gb", 64, 256, 4096, "megatron-core", "bf16"),
    "experts-fp8": ("qwen3-235b-a22b", "dgx-b200", 256, 1024, 4096, "megatron-bridge", "mxfp8"),
    "experts-fsdp": ("qwen3-30b-a3b", "dgx-b200", 64, 256, 4096, "torchtitan", "bf16"),
    "experts-zero": ("mixtral-8x7b", "dgx-h100", 64, 256, 4096, "deepspeed", "bf16"),
    "latent": ("deepseek-v2-lite", "h800-8x400g", 64, 256, 4096, "hai-llm", "fp8-blockwise"),
    "latent-rack": ("deepseek-v3", "gb200-nvl72", 288, 2304, 4096, "nemo", "bf16"),
    "hybrid": ("nemotron-h-56b", "dgx-h100", 64, 256, 8192, "megatron-core", "bf16"),
    "hybrid-experts": ("nemotron-3-nano-30b-a3b", "dgx-h200", 64, 256, 8192, "megatron-bridge", "bf16"),
    "hybrid-delta": ("qwen3-next-80b-a3b", "dgx-h100", 64, 256, 4096, "megatron-bridge", "bf16"),
}
NAMES = tuple(ASKED)
PLANS = 300
_DRAWS = 40_000
_UNUSUAL = 0.15


@dataclass(frozen=True)
class Pool:
    """Legal plans of one scenario."""

    scenario: Scenario
    facts: Facts
    table: PlanTable


@cache
def pool(name: str) -> Pool:
    """The plans of one of ``NAMES``, always the same."""
    model, cluster, devices, batch, seq_len, framework, precision = ASKED[name]
    trained_by = load_framework(framework)
    changes = {"framework": trained_by, "fused_attention": trained_by.fused_attention}
    changes["fused_pointwise"] = trained_by.fused_pointwise is not False
    scenario = scenario_of(model, cluster, devices, batch, seq_len, precision=precision).model_copy(update=changes)
    return Pool(scenario, Facts.of(scenario), _drawn(scenario, seed=20261130))


def pools() -> Iterable[tuple[str, Pool]]:
    """All of them, by name."""
    return ((name, pool(name)) for name in NAMES)


def changed(table: PlanTable, **columns: Ints | int) -> PlanTable:
    """The same plans with other values in some columns, legal or not."""
    given = {axis: np.broadcast_to(values, len(table)) for axis, values in columns.items()}
    return PlanTable(columns={**table.columns, **given})


def _drawn(scenario: Scenario, seed: int) -> PlanTable:
    random, model, framework = np.random.default_rng(seed), scenario.model, scenario.framework
    batch = scenario.workload.global_batch_size

    def among(values: Iterable[int]) -> Ints:
        return random.choice(np.array(list(values), dtype=np.int64), size=_DRAWS)

    tp, cp = among([1, 1, 2, 4, 8]), among([1, 1, 1, 2, 4])
    pp = among([1, 1, 2, 3, 4, 6, 8, 16])
    dp = scenario.devices // (tp * cp * pp)
    zero_stage = among(framework.zero_stages)
    replicate = np.where(zero_stage == 0, np.maximum(dp, 1), among([1, 1, 2]))
    schedules = list(map(SCHEDULES.index, framework.schedules)) or [SCHEDULES.index("1f1b")]
    micro = among([1, 1, 2, 4])
    columns = {
        "tp": tp,
        "cp": cp,
        "cp_comm_type": np.where(cp > 1, among(map(CP_COMM_TYPES.index, framework.cp_comm_types or ("p2p",))), 0),
        "ep": among(divisors(model.moe.num_experts) if model.moe else [1]),
        "etp": np.where(among([0, 1]), tp, 1) if model.moe else np.ones(_DRAWS, dtype=np.int64),
        "dp": dp,
        "dp_replicate": replicate,
        "dp_shard": dp // replicate,
        "pp": pp,
        "vpp": np.where(pp > 1, among([1, 1, 2, 3, 4, 5]), 1),
        "layout": np.where(pp > 1, among(map(int, Layout)), 0),
        "zero_stage": zero_stage,
        "micro_batch_size": micro,
        "num_microbatches": batch // np.maximum(dp * micro, 1),
        "recompute": among(range(3)),
        "schedule": np.where(pp > 1, among(schedules), SCHEDULES.index("1f1b")),
        "recompute_modules": np.zeros(_DRAWS, dtype=np.int64),
    }
    unusual = {
        "offload": among(range(len(OFFLOADS))),
        "recompute_interval": np.where(columns["recompute"] == 2, among([2, 4, 8]), 1),
        "reshard_after": among(range(len(RESHARD_AFTER))),
        "fsdp_prefetch": among([0, 2]),
        "tp_overlap": among([0]),
        "cp_balanced": among([0]),
        "moe_dispatcher": among(range(len(MOE_DISPATCHERS))),
        "ep_overlap": among([1]),
    }
    whole = (dp > 0) & (tp * cp * pp * dp == scenario.devices) & (dp % replicate == 0)
    columns |= {name: np.broadcast_to(codes, _DRAWS) for name, codes in usual_codes(scenario, columns).items()}
    for name, codes in unusual.items():
        columns[name] = np.where(random.random(_DRAWS) < _UNUSUAL, codes, columns[name])
    table = PlanTable(columns={axis: columns[axis][whole] for axis in AXES})
    table = table.take(_exists(scenario, table))
    table = table.take(legal_mask(scenario, table))
    _, first = np.unique(np.stack([table[axis] for axis in AXES]), axis=1, return_index=True)
    return table.take(np.sort(first)[:PLANS])


def _exists(scenario: Scenario, table: PlanTable) -> np.ndarray:
    """Whether each plan's layers have a layout."""

    @cache
    def exists(pp: int, vpp: int, layout: int, schedule: int) -> bool:
        placement = placement_of(SCHEDULES[schedule])
        return layers_per_chunk(scenario.model.num_layers, pp, vpp, Layout(layout), placement) is not None

    rows = zip(*(table[axis].tolist() for axis in ("pp", "vpp", "layout", "schedule")), strict=True)
    return np.array([exists(*row) for row in rows], dtype=np.bool_)
