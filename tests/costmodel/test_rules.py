"""Every rule with a plan that passes and one that doesn't, and what the rules say about whole tables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.framework_catalog import framework_names, load_framework
from costmodel.catalog.model_catalog import load_model
from costmodel.errors import UnknownName
from costmodel.recompute_modules import modules_code
from costmodel.rules import Rule, broken, broken_by, legal_mask, rules_for
from costmodel.rules.general import GENERAL_RULES
from costmodel.rules.megatron import MEGATRON_RULES
from costmodel.rules.rule import as_columns
from costmodel.scenario import Scenario
from costmodel.spec.base import FrozenMap
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.options import GRADIENT_SYNCS, MOE_DISPATCHERS, OFFLOADS, OPTIONS
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES
from costmodel.stages import Layout, layers_per_chunk
from costmodel.table import PlanTable
from tests import scenarios

INTERLEAVED = SCHEDULES.index("interleaved_1f1b")
GPIPE = SCHEDULES.index("gpipe")
DUALPIPE = SCHEDULES.index("dualpipe")
ALL_GATHER = CP_COMM_TYPES.index("all_gather")
A2A, HYBRID = CP_COMM_TYPES.index("a2a"), CP_COMM_TYPES.index("a2a+p2p")
ALL_TO_ALL = MOE_DISPATCHERS.index("all_to_all")
TOKENS_GATHERED = MOE_DISPATCHERS.index("all_gather")

SELECTIVE, FULL = RECOMPUTES.index("selective"), RECOMPUTES.index("full")
CORE, NORMS, MOE_ACT = (modules_code([name]) for name in ("core_attn", "layernorm", "moe_act"))
NO_HOST_LINK = load_cluster("dgx-h100").model_copy(update={"host_bandwidth_bytes_per_s": None})

BASE = {
    "tp": 2,
    "cp": 1,
    "cp_comm_type": 0,
    "ep": 1,
    "etp": 1,
    "dp": 8,
    "dp_replicate": 1,
    "dp_shard": 8,
    "pp": 4,
    "vpp": 1,
    "layout": 0,
    "zero_stage": 1,
    "micro_batch_size": 1,
    "num_microbatches": 16,
    "recompute": 0,
    "schedule": SCHEDULES.index("1f1b"),
    **{option.name: option.usual for option in OPTIONS if not callable(option.usual)},
    "recompute_modules": 0,
    "gradient_sync": GRADIENT_SYNCS.index("microbatch"),
    "cp_a2a_degree": 1,
}


def scenario_of(
    model: str = "llama-3-8b", version: str = "0.16", cluster: str | ClusterSpec = "dgx-h100", **how: Any
) -> Scenario:
    """128 sequences of 8192 on 64 H100s under one version of Megatron-Core."""
    return scenarios.scenario_of(
        model, cluster, 64, 128, 8192, version=version, calibration=scenarios.UNCALIBRATED, **how
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan that passes, one that fails (both as changes to BASE), and the whole line that says why."""

    fails: dict[str, int]
    reason: str
    passes: dict[str, int] = field(default_factory=dict)
    scenario: dict[str, Any] = field(default_factory=dict)
    # What is asked of the plan that passes, where no plan passes in ``scenario``.
    legal_scenario: dict[str, Any] = field(default_factory=dict)


MOE = {"model": "mixtral-8x7b"}
PREDICTING = {"model": load_model("deepseek-v3").model_copy(update={"num_mtp_layers": 2})}
OVERLAP = {"ep": 4, "ep_overlap": 1}
EQUAL_OR_ENDS = (
    "Megatron-Core 0.12 only has equal chunks, embedding and loss counted as layers, "
    "a first and last stage of their own size"
)

CASES = {
    "enough_devices": Case(fails={"dp": 16}, reason="tp 2 * cp 1 * dp 16 * pp 4 = 128, must be at most devices 64"),
    "idle_devices_are_whole_nodes": Case(
        passes={"dp": 7},
        fails={"tp": 1, "dp": 15},
        reason="devices 64 - used 60 = 4 idle; 4 % devices_per_node 8 = 4, must be 0",
    ),
    "batch_divisible": Case(fails={"dp": 7}, reason="global_batch_size 128 % (micro_batch_size * dp) 7 = 2, must be 0"),
    "microbatches_fill_batch": Case(
        passes={"micro_batch_size": 2, "num_microbatches": 8},
        fails={"num_microbatches": 8},
        reason="num_microbatches 8 must be global_batch_size 128 // (micro_batch_size 1 * dp 8) = 16 and at least 1",
    ),
    "experts_need_moe": Case(fails={"ep": 2}, reason="llama-3-8b has 0 experts: ep 2 and etp 1 must be 1"),
    "experts_divisible_by_ep": Case(
        scenario=MOE, passes={"ep": 4}, fails={"ep": 3}, reason="num_experts 8 % ep 3 = 2, must be 0"
    ),
    "pipeline_within_layers": Case(passes={"pp": 32}, fails={"pp": 64}, reason="pp 64 must be at most num_layers 32"),
    "layout_feasible": Case(
        passes={"pp": 2, "vpp": 17, "layout": Layout.EMBEDDING_AND_LOSS_COUNT},
        fails={"pp": 2, "vpp": 17, "layout": Layout.LOSS_COUNTS},
        reason="num_layers 32 on pp 2 * vpp 17 = 34 chunks: layout LOSS_COUNTS leaves an end below 0 layers",
    ),
    "every_stage_has_a_layer": Case(
        passes={"pp": 32},
        fails={"pp": 32, "layout": Layout.LOSS_COUNTS},
        reason="num_layers 32 on pp 32 split as 1,2,1x29,0 leaves a device with 0 decoder layers, must be at least 1",
    ),
    "chunks_within_layers": Case(
        passes={"pp": 2, "vpp": 17},
        fails={"pp": 7, "vpp": 5},
        reason="pp 7 * vpp 5 = 35 chunks must be at most num_layers 32 + 2, one each for embedding and loss",
    ),
    "schedule_known": Case(
        passes={"schedule": INTERLEAVED},
        fails={"schedule": GPIPE},
        reason="schedule gpipe with pp 4: Megatron-Core 0.16 has 1f1b, interleaved_1f1b",
    ),
    "schedule_fits_chunks": Case(
        passes={"schedule": INTERLEAVED, "vpp": 2},
        fails={"vpp": 2},
        reason="schedule 1f1b with pp 4, vpp 2: needs vpp 1",
    ),
    "dualpipe_needs_even_pp": Case(
        passes={"schedule": DUALPIPE},
        fails={"schedule": DUALPIPE, "pp": 3},
        reason="schedule dualpipe with pp 3: devices mirror each other in pairs, pp % 2 must be 0",
    ),
    "dualpipe_fills_both_ways": Case(
        passes={"schedule": DUALPIPE, "num_microbatches": 8},
        fails={"schedule": DUALPIPE, "num_microbatches": 6},
        reason="schedule dualpipe with num_microbatches 6: half of them go each way, the number must be even and at "
        "least 2 * pp 4 = 8",
    ),
    "cp_a2a_degree_fits_cp": Case(
        passes={"cp": 8, "cp_comm_type": HYBRID, "cp_a2a_degree": 4},
        fails={"cp": 8, "cp_comm_type": HYBRID, "cp_a2a_degree": 8},
        reason="cp_a2a_degree 8 with cp 8 by a2a+p2p must divide cp 8 and lie between 1 and 8, so that the product of "
        "both degrees is cp",
    ),
    "cp_balance_known": Case(
        passes={"cp_balanced": 0},
        fails={"cp": 2, "cp_balanced": 0},
        reason="cp_balanced false with cp 2: Megatron-Core 0.16 always gives every rank an early and a late piece of "
        "the sequence",
    ),
    "tp_overlap_known": Case(
        scenario={"features": {}},
        passes={"tp": 1, "tp_overlap": 0},
        fails={"tp_overlap": 0},
        reason="tp_overlap false with tp 2: Megatron-Core has no switch for it, and is priced as it was measured",
    ),
    "hybrid_cp_needs_cp_comm_type": Case(
        scenario={"version": "0.9"},
        passes={"cp": 4},
        fails={"cp": 4, "cp_comm_type": HYBRID, "cp_a2a_degree": 2},
        reason="cp 4 by a2a+p2p: Megatron-Core 0.9 doesn't have it yet",
    ),
    "hybrid_cp_heads_divisible": Case(
        passes={"cp": 32, "cp_comm_type": HYBRID, "cp_a2a_degree": 16},
        fails={"cp": 64, "cp_comm_type": HYBRID, "cp_a2a_degree": 32},
        reason="num_heads 32 % (tp * cp_a2a_degree) 64 = 32, must be 0",
    ),
    "hybrid_cp_kv_heads_divisible": Case(
        passes={"cp": 8, "cp_comm_type": HYBRID, "cp_a2a_degree": 4},
        fails={"cp": 16, "cp_comm_type": HYBRID, "cp_a2a_degree": 8},
        reason="num_kv_heads 8 % (tp * cp_a2a_degree) 16 = 8, must be 0",
    ),
    "zero_stage_known": Case(
        scenario={"zero_stages": (0, 1)}, fails={"zero_stage": 2}, reason="zero_stage 2: Megatron-Core has 0, 1"
    ),
    "reshard_needs_zero_3": Case(
        passes={"zero_stage": 3, "reshard_after": 1},
        fails={"zero_stage": 2, "reshard_after": 2},
        reason="reshard_after step with zero_stage 2: must be forward below stage 3, which alone gathers a layer twice",
    ),
    "prefetch_needs_zero_3": Case(
        passes={"zero_stage": 3, "fsdp_prefetch": 2},
        fails={"fsdp_prefetch": 0},
        reason="fsdp_prefetch 0 with zero_stage 1: must be 1 below stage 3",
    ),
    "reshard_known": Case(
        scenario={"reshard_after": {"forward": "0.9", "backward": "0.9", "step": "0.17"}},
        passes={"zero_stage": 3, "reshard_after": 1},
        fails={"zero_stage": 3, "reshard_after": 2},
        reason="reshard_after step: Megatron-Core 0.16 has forward, backward",
    ),
    "zero_plus_known": Case(
        fails={"zero_stage": 3, "zero_plus": 5}, reason="zero_plus qwz+qgz: Megatron-Core has no ZeRO++"
    ),
    "zero_plus_needs_zero_3": Case(
        scenario={"zero_plus": ("qwz", "hpz", "qgz")},
        passes={"zero_stage": 3, "zero_plus": 2},
        fails={"zero_stage": 2, "zero_plus": 2},
        reason="zero_plus hpz with zero_stage 2: must be 3",
    ),
    "dp_is_replicate_times_shard": Case(
        passes={"dp_replicate": 2, "dp_shard": 4},
        fails={"dp_shard": 4},
        reason="dp_replicate 1 * dp_shard 4 = 4, must be dp 8",
    ),
    "tensor_parallel_known": Case(
        scenario={"tensor_parallel": False},
        passes={"tp": 1},
        fails={},
        reason="tp 2 must be 1: Megatron-Core is planned without tensor parallelism",
    ),
    "expert_parallel_known": Case(
        scenario=MOE | {"expert_parallel": False},
        fails={"ep": 2},
        reason="ep 2 and etp 1 must be 1: Megatron-Core is planned without expert parallelism",
    ),
    "precision_in_hardware": Case(
        scenario={"precision": "mxfp8"},
        legal_scenario={"precision": "fp8"},
        fails={},
        reason=(
            "precision mxfp8 needs products of mxfp8; h100-sxm5-80gb has fp32, tf32, bf16, fp16, fp8, in blocks "
            "fp8-block"
        ),
    ),
    "recompute_known": Case(
        scenario={"selective_modules": ()},
        passes={"recompute": RECOMPUTES.index("full")},
        fails={"recompute": RECOMPUTES.index("selective")},
        reason="recompute selective: Megatron-Core recomputes a layer whole or not at all",
    ),
    "unsharded_has_one_shard": Case(
        passes={"zero_stage": 0, "dp_replicate": 8, "dp_shard": 1},
        fails={"zero_stage": 0},
        reason="zero_stage 0 shards nothing: dp_shard 8 must be 1",
    ),
    "cp_comm_type_known": Case(
        scenario={"cp_comm_types": ("p2p",)},
        passes={"cp": 2},
        fails={"cp": 2, "cp_comm_type": ALL_GATHER},
        reason="cp_comm_type all_gather with cp 2: Megatron-Core has p2p",
    ),
    "cp_comm_type_canonical": Case(
        passes={"cp": 2, "cp_comm_type": A2A},
        fails={"cp_comm_type": A2A},
        reason="cp_comm_type a2a means nothing with cp 1: such a plan is listed once, as p2p",
    ),
    "expert_mesh_divides_world": Case(
        scenario=MOE,
        passes={"ep": 8, "etp": 2},
        fails={"ep": 8, "etp": 4},
        reason="tp * cp * dp 16 % (ep * etp) 32 = 16, must be 0",
    ),
    "heads_divisible_by_tp": Case(fails={"tp": 3}, reason="num_heads 32 % tp 3 = 2, must be 0"),
    "kv_heads_divisible_by_tp": Case(
        scenario={"version": "0.15"},
        passes={"tp": 8},
        fails={"tp": 16},
        reason="num_kv_heads 8 % tp 16 = 8, must be 0",
    ),
    "kv_heads_match_tp": Case(
        passes={"tp": 16},
        fails={"tp": 12},
        reason="num_kv_heads 8 % tp 12 = 8 and tp 12 % num_kv_heads 8 = 4, one of them must be 0",
    ),
    "qkv_divisible_by_tp": Case(
        passes={"tp": 16},
        fails={"tp": 40},
        reason="(num_heads + 2 * num_kv_heads) * head_dim 6144 % tp 40 = 24, must be 0",
    ),
    "ffn_divisible_by_tp": Case(fails={"tp": 3}, reason="ffn_hidden_size 14336 % tp 3 = 2, must be 0"),
    "shared_expert_ffn_divisible_by_tp": Case(
        scenario={"model": "deepseek-v3"},
        fails={"tp": 3},
        reason="shared_expert_ffn_hidden_size 2048 % tp 3 = 2, must be 0",
    ),
    "expert_ffn_divisible_by_etp": Case(
        scenario=MOE,
        passes={"etp": 2},
        fails={"etp": 3},
        reason="expert_ffn_hidden_size 14336 % etp 3 = 2, must be 0",
    ),
    "layers_expressible": Case(
        scenario={"version": "0.12"},
        fails={"pp": 5},
        reason=f"num_layers 32 on pp 5 * vpp 1 as 6,7x2,6x2: {EQUAL_OR_ENDS}",
    ),
    "microbatches_divisible_by_pp": Case(
        # A multiple of pp * vpp = 8 is a folk rule: 12 will do.
        passes={"schedule": INTERLEAVED, "vpp": 2, "num_microbatches": 12},
        fails={"schedule": INTERLEAVED, "vpp": 2, "num_microbatches": 6},
        reason="num_microbatches 6 % pp 4 = 2, must be 0",
    ),
    "sequence_divisible_by_cp": Case(
        passes={"cp": 4}, fails={"cp": 3}, reason="seq_len 8192 % (2 * cp) 6 = 2, must be 0"
    ),
    "sequence_divisible_by_tp": Case(
        passes={"cp": 3, "tp": 1}, fails={"tp": 3}, reason="seq_len 8192 % (tp * cp) 3 = 2, must be 0"
    ),
    "a2a_needs_ulysses": Case(
        scenario={"version": "0.9"},
        passes={"cp": 2},
        fails={"cp": 2, "cp_comm_type": A2A},
        reason="cp 2 by a2a: Megatron-Core 0.9 doesn't have it yet",
    ),
    "all_gather_needs_cp_comm_type": Case(
        scenario={"version": "0.9"},
        passes={"cp": 2},
        fails={"cp": 2, "cp_comm_type": ALL_GATHER},
        reason="cp 2 by all_gather: Megatron-Core 0.9 doesn't have it yet",
    ),
    "a2a_heads_divisible_by_cp": Case(
        passes={"cp": 16, "cp_comm_type": A2A},
        fails={"cp": 64, "cp_comm_type": A2A},
        reason="num_heads 32 % (tp * cp) 128 = 32, must be 0",
    ),
    "a2a_kv_heads_divisible_by_cp": Case(
        passes={"cp": 4, "cp_comm_type": A2A},
        fails={"cp": 8, "cp_comm_type": A2A},
        reason="num_kv_heads 8 % (tp * cp) 16 = 8, must be 0",
    ),
    "gradient_sharding_needs_megatron_fsdp": Case(
        scenario={"version": "0.11"},
        fails={"zero_stage": 2},
        reason="zero_stage 2 needs Megatron-FSDP, which 0.11 lacks",
    ),
    "megatron_fsdp_optimizer": Case(
        scenario={"optimizer": "muon"},
        fails={"zero_stage": 3},
        reason="zero_stage 3 with optimizer muon: Megatron-FSDP has adam and sgd",
    ),
    "replicas_need_optimizer_instances": Case(
        scenario={"version": "0.9"},
        passes={"zero_stage": 0, "dp_replicate": 8},
        fails={"dp_replicate": 2},
        reason="dp_replicate 2 with zero_stage 1: 0.9 can't run several instances of the sharded optimizer, "
        "dp_replicate must be 1",
    ),
    "expert_dp_divisible_by_replicas": Case(
        scenario=MOE,
        passes={"ep": 8, "dp_replicate": 2},
        fails={"ep": 8, "dp_replicate": 4},
        reason="tp * cp * dp 16 % (ep * etp * dp_replicate) 32 = 16, must be 0",
    ),
    "latent_attention_known": Case(
        scenario={"model": "deepseek-v3", "version": "0.9"},
        legal_scenario={"model": "mixtral-8x7b"},
        fails={},
        reason="deepseek-v3 has latent attention: Megatron-Core 0.9 has none, 0.10 is the first that has",
    ),
    "latent_attention_without_tensor_parallelism": Case(
        scenario={"model": "deepseek-v3", "version": "0.10"},
        passes={"tp": 1},
        fails={"tp": 2},
        reason="tp 2 must be 1: Megatron-Core 0.10 doesn't cut latent attention over tp",
    ),
    "shared_experts_known": Case(
        scenario={"model": "deepseek-v3", "version": "0.9"},
        legal_scenario={"model": "mixtral-8x7b"},
        fails={},
        reason="deepseek-v3 has shared experts: Megatron-Core 0.9 has none, 0.10 is the first that has",
    ),
    "multi_token_prediction_known": Case(
        scenario={"model": "deepseek-v3", "version": "0.11"},
        legal_scenario={"model": "mixtral-8x7b"},
        fails={},
        reason="deepseek-v3 has multi-token prediction: Megatron-Core 0.11 has none, 0.12 is the first that has",
    ),
    "gated_delta_net_known": Case(
        scenario={"model": "qwen3-next-80b-a3b", "version": "0.15"},
        legal_scenario={"model": "nemotron-h-56b"},
        fails={},
        reason="qwen3-next-80b-a3b has gated delta nets: Megatron-Core 0.15 has none, 0.16 is the first that has",
    ),
    "mixer_context_parallelism_known": Case(
        scenario={"model": "qwen3-next-80b-a3b"},
        fails={"cp": 2},
        reason="cp 2 must be 1: Megatron-Core 0.16 runs gated_delta_net on whole sequences",
    ),
    "mixer_heads_divisible_by_tp_and_cp": Case(
        scenario={"model": "qwen3-next-80b-a3b", "version": "0.17"},
        passes={"tp": 2, "cp": 8},
        fails={"tp": 2, "cp": 16},
        reason="gated_delta_net: heads 32 % (tp * cp) 32 = 0 and key heads 16 % (tp * cp) 32 = 16, both must be 0",
    ),
    "experts_divide_data_parallel": Case(
        scenario=MOE | {"version": "0.9"},
        passes={"ep": 4, "etp": 2},
        fails={"ep": 4, "etp": 2, "dp": 2, "dp_shard": 2, "cp": 4},
        reason="dp 2 % ep 4 = 2, must be 0",
    ),
    "moe_dispatcher_known": Case(
        scenario=MOE | {"version": "0.11"},
        passes={"ep": 4, "moe_dispatcher": ALL_TO_ALL},
        fails={"ep": 4},
        reason="moe_dispatcher deduplicated with ep 4: Megatron-Core 0.11 has all_to_all, all_gather",
    ),
    "ep_overlap_known": Case(
        scenario=MOE | {"version": "0.13"},
        fails=OVERLAP,
        reason="ep_overlap must be false: Megatron-Core 0.13 has no overlap of dispatch and combine",
    ),
    "capacity_known": Case(
        scenario=MOE | {"features": {}},
        fails={"moe_capacity_factor": 125},
        reason="moe_capacity_factor 1.25 must be none: Megatron-Core 0.16 drops no tokens",
    ),
    "capacity_needs_moe": Case(
        fails={"moe_capacity_factor": 150}, reason="moe_capacity_factor 1.5 must be none: llama-3-8b has 0 experts"
    ),
    "ep_overlap_needs_ep": Case(
        scenario=MOE,
        passes=OVERLAP,
        fails={"ep_overlap": 1},
        reason="ep_overlap with ep 1: nothing is sent, ep must be above 1",
    ),
    "ep_overlap_dispatcher": Case(
        scenario=MOE,
        passes=OVERLAP,
        fails=OVERLAP | {"moe_dispatcher": TOKENS_GATHERED},
        reason="ep_overlap with moe_dispatcher all_gather: all_to_all or deduplicated",
    ),
    "ep_overlap_needs_virtual_stages": Case(
        scenario=MOE,
        passes=OVERLAP | {"pp": 1},
        fails=OVERLAP,
        reason="ep_overlap with pp 4 and vpp 1: vpp must be at least 2",
    ),
    "ep_overlap_without_full_recompute": Case(
        scenario=MOE,
        passes=OVERLAP | {"recompute": RECOMPUTES.index("selective")},
        fails=OVERLAP | {"recompute": RECOMPUTES.index("full")},
        reason="ep_overlap with recompute full: must be none or selective",
    ),
    "ep_overlap_precision": Case(
        scenario=MOE | {"precision": "fp32"},
        legal_scenario={"precision": "bf16"},
        passes=OVERLAP,
        fails=OVERLAP,
        reason="ep_overlap with precision fp32, whose activations have 4 bytes: at most 2, bf16 or fp16",
    ),
    "ep_overlap_mtp": Case(
        scenario=PREDICTING,
        legal_scenario={"model": "deepseek-v3"},
        passes=OVERLAP,
        fails=OVERLAP,
        reason="ep_overlap with 2 layers of multi-token prediction: at most 1",
    ),
    "ep_overlap_mtp_in_pipeline": Case(
        scenario={"model": "deepseek-v3"},
        passes=OVERLAP,
        fails=OVERLAP | {"pp": 1},
        reason="ep_overlap with a layer of multi-token prediction and pp 1: must be above 1",
    ),
    "capacity_dispatcher": Case(
        scenario=MOE | {"version": "0.15"},
        passes={"ep": 4, "moe_capacity_factor": 125, "moe_dispatcher": ALL_TO_ALL},
        fails={"ep": 4, "moe_capacity_factor": 125},
        reason="moe_capacity_factor 1.25 with moe_dispatcher deduplicated: Megatron-Core 0.15 pads experts to capacity "
        "under all_to_all",
    ),
    "expert_tensor_parallel_is_tp": Case(
        scenario=MOE | {"version": "0.9"},
        passes={"etp": 2},
        fails={"etp": 1},
        reason="etp 1 must be tp 2: Megatron-Core 0.9 cuts experts as everything else",
    ),
    "recompute_modules_known": Case(
        scenario={"version": "0.11"},
        passes={"recompute": SELECTIVE, "recompute_modules": CORE},
        fails={"recompute": SELECTIVE, "recompute_modules": CORE | NORMS},
        reason="recompute_modules layernorm: Megatron-Core 0.11 has core_attn",
    ),
    "fp8_norms_run_once": Case(
        scenario={"precision": "fp8"},
        passes={"recompute": SELECTIVE, "recompute_modules": CORE},
        fails={"recompute": SELECTIVE, "recompute_modules": CORE | NORMS},
        reason="recompute_modules layernorm in precision fp8: Megatron-Core 0.16 refuses to run it twice",
    ),
    "recompute_modules_in_model": Case(
        passes={"recompute": SELECTIVE, "recompute_modules": CORE | NORMS},
        fails={"recompute": SELECTIVE, "recompute_modules": CORE | MOE_ACT},
        reason="recompute_modules moe_act: llama-3-8b has no experts",
    ),
    "recompute_interval_is_of_whole_layers": Case(
        passes={"recompute": FULL, "recompute_interval": 4},
        fails={"recompute": SELECTIVE, "recompute_interval": 4},
        reason="recompute_interval 4 with recompute selective, must be full",
    ),
    "recompute_interval_known": Case(
        scenario={"features": FrozenMap({})},
        legal_scenario={"features": load_framework("megatron-core").features},
        passes={"recompute": FULL, "recompute_interval": 4},
        fails={"recompute": FULL, "recompute_interval": 4},
        reason="recompute_interval 4: Megatron-Core checkpoints every layer by itself",
    ),
    "offload_known": Case(
        scenario={"version": "0.11"},
        passes={"offload": OFFLOADS.index("activations"), "pp": 1},
        fails={"offload": OFFLOADS.index("optimizer")},
        reason="offload optimizer: Megatron-Core 0.11 has activations",
    ),
    "offload_needs_host_link": Case(
        scenario={"cluster": NO_HOST_LINK},
        legal_scenario={"cluster": load_cluster("dgx-h100")},
        passes={"offload": OFFLOADS.index("optimizer")},
        fails={"offload": OFFLOADS.index("optimizer")},
        reason="offload optimizer: dgx-h100 gives no host_bandwidth_bytes_per_s to price it with",
    ),
    "activation_offload_without_pipeline": Case(
        passes={"offload": OFFLOADS.index("activations"), "pp": 1},
        fails={"offload": OFFLOADS.index("activations")},
        reason="offload activations with pp 4, must be 1",
    ),
    "activation_offload_without_recompute": Case(
        passes={"offload": OFFLOADS.index("activations")},
        fails={"offload": OFFLOADS.index("activations"), "recompute": FULL},
        reason="offload activations with recompute full, must be none",
    ),
    "optimizer_offload_is_precision_aware": Case(
        passes={"offload": OFFLOADS.index("optimizer")},
        fails={"offload": OFFLOADS.index("optimizer"), "zero_stage": 0, "dp_replicate": 8, "dp_shard": 1},
        reason="offload optimizer needs --use-precision-aware-optimizer, which needs a sharded optimizer: zero_stage 0 "
        "must be 1 to 3",
    ),
}


def test_every_rule_has_a_case_and_a_name_of_its_own() -> None:
    names = [rule.name for rule in (*GENERAL_RULES, *MEGATRON_RULES)]
    assert len(set(names)) == len(names)
    assert set(names) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_passes_one_plan_and_says_why_it_refuses_another(name: str) -> None:
    case = CASES[name]
    scenario = scenario_of(**case.scenario)
    rule = next(rule for rule in rules_for(scenario.framework) if rule.name == name)

    def holds(asked: Scenario, changes: dict[str, int]) -> bool:
        # Only the axes that it declares: a rule that read another one would fail here.
        return bool(rule.holds(asked, as_columns({axis: (BASE | changes)[axis] for axis in rule.axes})))

    assert holds(scenario_of(**(case.scenario | case.legal_scenario)), case.passes)
    assert not holds(scenario, case.fails)
    assert rule.reason(scenario, BASE | case.fails) == case.reason
    assert (rule, case.reason) in broken(scenario, BASE | case.fails)
    assert rule.source


def test_a_legal_plan_breaks_nothing() -> None:
    assert broken(scenario_of(), BASE) == ()


def test_tables_agree_with_single_rows() -> None:
    scenario = scenario_of("mixtral-8x7b", "0.12")
    rows = [BASE | case.passes for case in CASES.values()] + [BASE | case.fails for case in CASES.values()]
    table = PlanTable.of_rows(rows)
    by_rule, legal = broken_by(scenario, table), legal_mask(scenario, table)
    assert set(by_rule) == {rule.name for rule in rules_for(scenario.framework)}
    for index, row in enumerate(rows):
        expected = {rule.name for rule, _ in broken(scenario, row)}
        assert {name for name, where in by_rule.items() if where[index]} == expected
        assert legal[index] == (not expected)
    assert 0 < legal.sum() < len(rows)


def test_an_empty_table_is_fine() -> None:
    scenario = scenario_of(version="0.9")
    empty = PlanTable.of_rows([])
    assert legal_mask(scenario, empty).shape == (0,)
    assert all(where.shape == (0,) for where in broken_by(scenario, empty).values())


def test_rules_work_on_grids_of_axis_values() -> None:
    scenario = scenario_of(version="0.12")
    tps, pps = np.array([1, 2, 3, 4, 8]), np.array([1, 2, 3, 5, 16, 64])
    columns = as_columns(BASE) | {"tp": tps[:, np.newaxis], "pp": pps[np.newaxis, :]}
    for rule in rules_for(scenario.framework):
        grid = np.broadcast_to(rule.holds(scenario, columns), (len(tps), len(pps)))
        for i, tp in enumerate(tps):
            for j, pp in enumerate(pps):
                one = rule.holds(scenario, as_columns(BASE | {"tp": int(tp), "pp": int(pp)}))
                assert grid[i, j] == one, (rule.name, tp, pp)


def test_inside_one_node_any_number_of_devices_may_be_used() -> None:
    scenario = scenario_of().model_copy(update={"devices": 8})
    row = BASE | {"dp": 3, "pp": 1}
    assert "idle_devices_are_whole_nodes" not in {rule.name for rule, _ in broken(scenario, row)}


@pytest.mark.parametrize(
    ("changes", "version", "legal"),
    [
        # 4,5,4,...,4,3 needs a layout string.
        ({"pp": 8, "layout": Layout.LOSS_COUNTS}, "0.13", True),
        ({"pp": 8, "layout": Layout.LOSS_COUNTS}, "0.12", False),
        # 33 slots on 11 devices are 3,...,3,2: a last stage of its own size, in chunks the loss counted as a layer.
        ({"pp": 11, "layout": Layout.LOSS_COUNTS}, "0.9", True),
        ({"pp": 11, "vpp": 3, "layout": Layout.LOSS_COUNTS}, "0.9", False),
        ({"pp": 11, "vpp": 3, "layout": Layout.LOSS_COUNTS}, "0.11", True),
        # 17 - 1 on both ends is 16,16 by another name.
        ({"pp": 2, "layout": Layout.EMBEDDING_AND_LOSS_COUNT}, "0.9", True),
        ({"pp": 2, "vpp": 3}, "0.12", False),
    ],
)
def test_which_version_can_say_which_split(changes: dict[str, int], version: str, legal: bool) -> None:
    scenario = scenario_of(version=version)
    names = {rule.name for rule, _ in broken(scenario, BASE | changes)}
    assert ("layers_expressible" not in names) == legal


def test_a_rule_set_that_nobody_knows_is_refused() -> None:
    framework = load_framework("megatron-core").model_copy(update={"rules": "megatron-cor"})
    with pytest.raises(UnknownName, match="did you mean megatron-core"):
        rules_for(framework)


@pytest.mark.parametrize(("version", "legal"), [("0.10", False), ("0.11", True)])
def test_uneven_ends_with_virtual_stages_since_0_11(version: str, legal: bool) -> None:
    """14 layers as 1,1 2,2 2,2 2,2 on 4 devices: a first stage of its own size."""
    scenario = scenario_of(version=version)
    model = scenario.model.model_copy(update={"num_layers": 14})
    scenario = scenario.model_copy(update={"model": model})
    row = BASE | {"pp": 4, "vpp": 2, "schedule": INTERLEAVED, "num_microbatches": 16}
    rule = next(rule for rule in rules_for(scenario.framework) if rule.name == "layers_expressible")
    splits = [layers_per_chunk(14, 4, 2, layout) for layout in Layout]
    assert splits.count(None) < len(splits)
    verdicts = [bool(rule.holds(scenario, as_columns(row | {"layout": int(layout)}))) for layout in Layout]
    assert any(verdicts) == legal, splits


@pytest.mark.parametrize(("version", "legal"), [("0.13", False), ("0.14", True)])
def test_a_layout_holds_multi_token_prediction_since_0_14(version: str, legal: bool) -> None:
    scenario = scenario_of(version=version)
    predicting = scenario.model_copy(update={"model": scenario.model.model_copy(update={"num_mtp_layers": 1})})
    row = BASE | {"pp": 8, "layout": Layout.LOSS_COUNTS}
    assert "layers_expressible" not in {rule.name for rule, _ in broken(scenario, row)}
    assert ("layers_expressible" not in {rule.name for rule, _ in broken(predicting, row)}) == legal


@pytest.mark.parametrize(("version", "legal"), [("0.12", True), ("0.13", False)])
def test_experts_have_optimizer_instances_since_0_13(version: str, legal: bool) -> None:
    row = BASE | {"ep": 8, "dp_replicate": 4, "dp_shard": 2}
    found = {rule.name for rule, _ in broken(scenario_of("mixtral-8x7b", version), row)}
    assert ("expert_dp_divisible_by_replicas" not in found) == legal


def test_features_select_rules() -> None:
    def rule(**limits: str) -> Rule:
        return Rule(name="r", axes=(), holds=lambda s, c: np.True_, reason=lambda s, r: "", source="", **limits)

    at = {version: load_framework("megatron-core", version) for version in ("0.9", "0.10", "0.15", "0.16")}
    assert [rule(with_feature="kv_replication").applies_to(spec) for spec in at.values()] == [False] * 3 + [True]
    assert [rule(without_feature="kv_replication").applies_to(spec) for spec in at.values()] == [True] * 3 + [False]


@pytest.mark.parametrize(
    ("framework", "rule", "source"),
    [
        ("megatron-core", "batch_divisible", "num_microbatches_calculator.py"),
        ("nemo", "batch_divisible", "num_microbatches_calculator.py"),
        ("deepspeed", "batch_divisible", "deepspeed/runtime/config.py"),
        ("torchtitan", "batch_divisible", "torchtitan/trainer.py"),
        ("torchtitan", "schedule_fits_chunks", "pipeline_parallel.py"),
        ("pytorch-fsdp", "batch_divisible", "arithmetic"),
        ("accelerate", "experts_need_moe", "arithmetic"),
    ],
)
def test_a_general_rule_cites_the_framework_that_asks_it(framework: str, rule: str, source: str) -> None:
    sources = {found.name: found.source for found in rules_for(load_framework(framework))}
    assert source in sources[rule]


@pytest.mark.parametrize("name", framework_names())
def test_no_framework_is_told_of_another_one_s_code(name: str) -> None:
    spec = load_framework(name)
    general = {rule.name for rule in GENERAL_RULES}
    assert set(spec.rule_sources) <= general
    if spec.rules != "megatron-core":
        assert [rule.name for rule in rules_for(spec) if rule.name in general and "Megatron" in rule.source] == []


@pytest.mark.parametrize("name", ["pytorch-fsdp", "xla-fsdp", "llm-foundry"])
@pytest.mark.parametrize("axis", ["tp", "pp", "cp", "ep"])
def test_what_is_data_parallel_only_has_no_other_axis(name: str, axis: str) -> None:
    scenario = scenario_of("mixtral-8x7b").model_copy(update={"framework": load_framework(name)})
    alone = BASE | {"tp": 1, "pp": 1, "dp": 32, "dp_shard": 32, "zero_stage": 3, "num_microbatches": 4}
    assert broken(scenario, alone) == ()
    halved = alone if axis == "ep" else alone | {"dp": 16, "dp_shard": 16, "num_microbatches": 8}
    assert broken(scenario, halved | {axis: 2})


@pytest.mark.parametrize(
    ("model", "plan", "version", "legal"),
    [
        ("qwen3-next-80b-a3b", {"tp": 2, "cp": 16}, "0.16", False),
        ("qwen3-next-80b-a3b", {"tp": 2, "cp": 16}, "0.17", False),
        ("qwen3-next-80b-a3b", {"tp": 2, "cp": 8}, "0.17", True),
        ("qwen3-next-80b-a3b", {"tp": 32}, "0.16", False),
        # 8 groups of Mamba are repeated where more ranks of cp want them, but not over tp.
        ("nemotron-h-56b", {"tp": 8, "cp": 4}, "0.13", True),
        ("nemotron-h-56b", {"tp": 8, "cp": 4}, "0.12", False),
        ("nemotron-h-56b", {"tp": 16}, "0.13", False),
        # Lightning attention is none of Megatron's.
        ("minimax-text-01", {"tp": 2, "cp": 16}, "0.16", True),
    ],
)
def test_mixers_of_hybrids_are_cut_by_heads(model: str, plan: dict[str, int], version: str, legal: bool) -> None:
    found = {rule.name for rule, _ in broken(scenario_of(model, version), BASE | plan)}
    assert (not any(name.startswith("mixer_") for name in found)) == legal


def test_policy_is_what_some_framework_runs() -> None:
    at = {name: load_framework(name) for name in ("megatron-core", "torchtitan")}
    policy = {rule.name: [rule.is_policy_under(spec) for spec in at.values()] for rule in GENERAL_RULES if rule.policy}
    assert policy == {
        "idle_devices_are_whole_nodes": [True, True],
        "pipeline_within_layers": [True, True],
        "every_stage_has_a_layer": [True, False],
        "chunks_within_layers": [True, True],
        "cp_comm_type_canonical": [True, True],
        "offload_needs_host_link": [True, True],
        "reshard_needs_zero_3": [True, True],
        "prefetch_needs_zero_3": [True, True],
    }
    assert all(rule.source.startswith("planner: ") for rule in GENERAL_RULES if rule.policy)
    assert not any(rule.policy for rule in MEGATRON_RULES)


def test_the_document_lists_every_rule() -> None:
    document = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    assert [name for name in CASES if f"| `{name}` |" not in document] == []


def test_the_document_tells_which_rules_are_policy() -> None:
    document = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"^Policy: (.*?)`suggest` lists", document, re.MULTILINE | re.DOTALL)
    rules = {rule for name in framework_names() for rule in rules_for(load_framework(name))}
    assert set(re.findall(r"`(\w+)`", said)) == {rule.name for rule in rules if rule.policy}
