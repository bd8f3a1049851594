"""Every rule of the frameworks beside Megatron-Core, with a plan that passes and one that doesn't."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from costmodel.catalog.framework_catalog import framework_names, load_framework
from costmodel.rules import broken, rules_for
from costmodel.rules.general import GENERAL_RULES
from costmodel.rules.offload import ACTIVATIONS, OPTIMIZER, PARAMETERS
from costmodel.rules.rule import as_columns
from costmodel.rules.selection import RULE_SETS
from costmodel.scenario import Scenario
from costmodel.spec.plan import CP_COMM_TYPES, SCHEDULES
from costmodel.stages import Layout
from tests import scenarios
from tests.costmodel.test_rules import BASE

F1B = SCHEDULES.index("1f1b")
INTERLEAVED = SCHEDULES.index("interleaved_1f1b")
P2P, ALL_GATHER, A2A, HYBRID = (CP_COMM_TYPES.index(kind) for kind in ("p2p", "all_gather", "a2a", "a2a+p2p"))

ALONE = {"tp": 1, "pp": 1}
NO_ZERO = {"zero_stage": 0, "dp_replicate": 8, "dp_shard": 1}


def scenario_of(
    framework: str,
    model: str = "llama-3-8b",
    version: str | None = None,
    cluster: str = "dgx-h100",
    seq_len: int = 8192,
) -> Scenario:
    """128 sequences on 64 devices."""
    scenario = scenarios.scenario_of(model, cluster, 64, 128, seq_len, calibration=scenarios.UNCALIBRATED)
    return scenario.model_copy(update={"framework": load_framework(framework, version)})


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan that passes and one that fails, both as changes to BASE, and the line that says why."""

    fails: dict[str, int]
    reason: str
    passes: dict[str, int] = field(default_factory=dict)
    scenario: dict[str, Any] = field(default_factory=dict)


MOE = {"model": "mixtral-8x7b"}
DEEPSEEK = {"model": "deepseek-v3"}
TPU = {"cluster": "tpu-v5p"}

CASES = {
    ("deepspeed", "zero_plus_without_experts"): Case(
        scenario=MOE,
        passes={"ep": 2, "zero_stage": 3, "zero_plus": 1},
        fails={"ep": 2, "zero_stage": 3, "zero_plus": 6},
        reason="zero_plus hpz+qgz with ep 2: AutoEP under stage 3 has neither qgz nor hpz",
    ),
    ("deepspeed", "second_copy_without_model_parallelism"): Case(
        passes={"tp": 1, "zero_plus": 7},
        fails={"tp": 2, "zero_plus": 2},
        reason="zero_plus hpz with tp 2 and cp 1: the groups inside a node are of consecutive ranks, whatever else "
        "these share",
    ),
    ("deepspeed", "second_copy_without_replicas"): Case(
        scenario={"version": "0.18"},
        passes={"dp_replicate": 2, "dp_shard": 4},
        fails={"dp_replicate": 2, "dp_shard": 4, "zero_plus": 1},
        reason="zero_plus qwz with dp_replicate 2: MiCS has its own class of parameters, which knows none of it",
    ),
    ("deepspeed", "gradients_accumulate_sharded"): Case(
        scenario={"version": "0.18"},
        passes={"zero_stage": 1},
        fails={"zero_stage": 2, "gradient_sync": 0},
        reason="gradient_sync step with zero_stage 2: DeepSpeed 0.18 has no no_sync where gradients are partitioned",
    ),
    ("torchtitan", "pipelines_reduce_once_a_step"): Case(
        passes={"pp": 4, "zero_stage": 3, "gradient_sync": 0},
        fails={"pp": 4, "zero_stage": 3, "gradient_sync": 1},
        reason="gradient_sync microbatch with pp 4: pipelines reduce gradients of shards once a step, and nothing else "
        "does",
    ),
    ("torchtitan", "parameters_stay_in_pipelines_alone"): Case(
        passes={"pp": 4, "reshard_after": 2},
        fails={"pp": 1, "reshard_after": 2},
        reason="reshard_after step with pp 1: only pipelines keep parameters from one micro-batch to the next",
    ),
    ("torchtitan", "heads_divisible_by_tp"): Case(fails={"tp": 3}, reason="num_heads 32 % tp 3 = 2, must be 0"),
    ("torchtitan", "kv_heads_divisible_by_tp"): Case(
        passes={"tp": 8}, fails={"tp": 16}, reason="num_kv_heads 8 % tp 16 = 8, must be 0"
    ),
    ("torchtitan", "expert_mesh_divides_shards"): Case(
        scenario=MOE,
        passes={"ep": 8},
        fails={"ep": 8, "dp_replicate": 4, "dp_shard": 2},
        reason="tp * cp * dp_shard 4 % (ep * etp) 8 = 4, must be 0",
    ),
    ("torchtitan", "expert_tensor_parallel_follows_tp"): Case(
        scenario=MOE,
        passes={"ep": 1, "etp": 2},
        fails={"ep": 2, "etp": 2},
        reason="etp 2 with ep 2 must be 1 in torchtitan 0.3",
    ),
    ("torchtitan", "ep_covers_tp"): Case(
        scenario=MOE | {"version": "2026-09"},
        passes={"tp": 4, "ep": 4},
        fails={"tp": 4, "ep": 2},
        reason="ep 2 must be at least tp 4: experts are no longer cut by tp",
    ),
    ("torchtitan", "expert_shards_are_even"): Case(
        scenario=MOE,
        passes={"ep": 4},
        fails={"ep": 4, "dp": 12, "dp_shard": 12},
        reason="8 experts are too few for the ranks of FSDP, so each is cut over 6: "
        "expert_ffn_hidden_size 14336 % (6 * etp 1) and hidden_size 4096 % 6 must be 0",
    ),
    ("torchtitan", "sequence_divisible_by_cp_and_tp"): Case(
        scenario={"seq_len": 8194},
        passes={"tp": 2},
        fails={"tp": 2, "cp": 2},
        reason="seq_len 8194 % (tp * chunks of cp) 8 = 2, must be 0",
    ),
    ("torchtitan", "ring_rotation_removed"): Case(
        passes={"cp": 2, "cp_comm_type": ALL_GATHER},
        fails={"cp": 2, "cp_comm_type": P2P},
        reason="cp 2 by p2p: torchtitan 0.3 gathers keys and values, context_parallel_rotate_method is gone",
    ),
    ("torchtitan", "context_parallelism_is_sharded"): Case(
        passes={"cp": 2, "zero_stage": 2},
        fails={"cp": 2} | NO_ZERO,
        reason="cp 2 with zero_stage 0: FSDP shards over cp too, zero_stage must be 2 or 3",
    ),
    ("torchtitan", "replicas_need_plain_data_parallelism"): Case(
        scenario={"version": "0.2"},
        passes=NO_ZERO | ALONE,
        fails=NO_ZERO,
        reason="zero_stage 0 with dp_replicate 8, tp 2 and pp 4: torchtitan 0.2 runs DDP alone, tp and pp must be 1",
    ),
    ("torchtitan", "untied_embeddings_with_pipeline"): Case(
        scenario={"model": "llama-3.2-1b"},
        passes={"pp": 1},
        fails={"pp": 4},
        reason="pp 4 with the tied embeddings of llama-3.2-1b: the copies on the first and the last stage "
        "would drift apart, pp must be 1",
    ),
    ("torchtitan", "microbatches_cover_stages"): Case(
        passes={"num_microbatches": 4},
        fails={"num_microbatches": 3},
        reason="num_microbatches 3 must be at least the 4 stages of pp 4 under 1f1b",
    ),
    ("torchtitan", "microbatches_fill_rounds"): Case(
        # Fewer than two rounds of pp are one round of any length.
        passes={"schedule": INTERLEAVED, "vpp": 2, "num_microbatches": 7},
        fails={"schedule": INTERLEAVED, "vpp": 2, "num_microbatches": 9},
        reason="num_microbatches 9 % (num_microbatches // pp) 2 = 1, must be 0",
    ),
    ("deepspeed", "pipeline_needs_zero_below_2"): Case(
        passes={"zero_stage": 1},
        fails={"zero_stage": 2},
        reason="zero_stage 2 with pp 4: must be 0 or 1 under a pipeline",
    ),
    ("deepspeed", "pipeline_without_context_parallelism"): Case(
        passes={"cp": 2, "pp": 1},
        fails={"cp": 2},
        reason="cp 2 with pp 4: pipeline modules know no sequence parallel ranks",
    ),
    ("deepspeed", "auto_tp_needs_zero_below_3"): Case(
        scenario={"version": "0.18"},
        passes={"zero_stage": 2},
        fails={"zero_stage": 3},
        reason="zero_stage 3 with tp 2: DeepSpeed 0.18 stops at 2 with AutoTP",
    ),
    ("deepspeed", "replicas_need_mics"): Case(
        scenario={"version": "0.18"},
        passes={"zero_stage": 3, "dp_replicate": 2},
        fails={"zero_stage": 2, "dp_replicate": 2},
        reason="dp_replicate 2 with zero_stage 2: only stage 3 shards over fewer than all replicas (MiCS)",
    ),
    ("deepspeed", "no_hybrid_sharding"): Case(
        passes=NO_ZERO,
        fails={"zero_stage": 3, "dp_replicate": 2, "dp_shard": 4},
        reason="dp_replicate 2 with zero_stage 3: DeepSpeed 0.19 shards over all replicas, dp_replicate must be 1",
    ),
    ("deepspeed", "expert_mesh_divides_world"): Case(
        scenario=MOE,
        passes={"ep": 8, "etp": 2},
        fails={"ep": 8, "etp": 4},
        reason="tp * cp * dp 16 % (ep * etp) 32 = 16, must be 0",
    ),
    ("deepspeed", "experts_divide_data_parallel"): Case(
        scenario=MOE,
        passes={"ep": 8, "dp": 4, "pp": 1},
        fails={"ep": 8, "dp": 4},
        reason="cp * dp 4 % ep 8 = 4, must be 0, or etp, pp and cp 1 for AutoEP",
    ),
    ("deepspeed", "expert_tensor_parallel_is_1_or_tp"): Case(
        scenario=MOE,
        passes={"tp": 4, "etp": 4},
        fails={"tp": 4, "etp": 2},
        reason="etp 2 must be 1 or tp 4: enable_expert_tensor_parallelism is a switch",
    ),
    ("deepspeed", "zero_3_without_expert_parallelism"): Case(
        scenario=MOE | {"version": "0.18"},
        passes={"zero_stage": 3},
        fails={"zero_stage": 3, "ep": 2},
        reason="ep 2 with zero_stage 3: DeepSpeed 0.18 has no MoE under stage 3",
    ),
    ("deepspeed", "zero_3_experts_without_context_parallelism"): Case(
        scenario=MOE,
        passes={"zero_stage": 3, "ep": 2},
        fails={"zero_stage": 3, "ep": 2, "cp": 2},
        reason="ep 2 with zero_stage 3, cp 2 and etp 1: AutoEP under stage 3 needs cp 1 and etp 1",
    ),
    ("deepspeed", "sequence_divisible_by_cp"): Case(
        passes={"cp": 2}, fails={"cp": 3}, reason="seq_len 8192 % cp 3 = 2, must be 0"
    ),
    ("deepspeed", "a2a_heads_divisible_by_cp"): Case(
        passes={"cp": 16, "cp_comm_type": A2A},
        fails={"cp": 3, "cp_comm_type": A2A},
        reason="num_heads 32 % (tp * cp) 6 = 2, must be 0",
    ),
    ("deepspeed", "a2a_kv_heads_match_cp"): Case(
        passes={"cp": 16, "cp_comm_type": A2A},
        fails={"tp": 1, "cp": 12, "cp_comm_type": A2A},
        reason="num_kv_heads 8 % (tp * cp) 12 = 8 and (tp * cp) 12 % num_kv_heads 8 = 4, one of them must be 0",
    ),
    ("nanotron", "heads_divisible_by_tp"): Case(fails={"tp": 3}, reason="num_heads 32 % tp 3 = 2, must be 0"),
    ("nanotron", "kv_heads_divisible_by_tp"): Case(
        passes={"tp": 8}, fails={"tp": 16}, reason="num_kv_heads 8 % tp 16 = 8, must be 0"
    ),
    ("nanotron", "ffn_divisible_by_tp"): Case(fails={"tp": 3}, reason="ffn_hidden_size 14336 % tp 3 = 2, must be 0"),
    ("nanotron", "no_expert_parallelism"): Case(
        scenario=MOE,
        fails={"ep": 2},
        reason="ep 2 and etp 1 must be 1: nanotron 2026-04 holds every expert whole on every rank",
    ),
    ("nanotron", "no_context_parallelism"): Case(
        scenario={"version": "0.4"},
        fails={"cp": 2},
        reason="cp 2 must be 1: nanotron 0.4 has no context parallelism yet",
    ),
    ("nanotron", "no_hybrid_sharding"): Case(
        passes=NO_ZERO,
        fails={"dp_replicate": 2, "dp_shard": 4},
        reason="dp_replicate 2 with zero_stage 1: nanotron 2026-04 shards over all replicas, dp_replicate must be 1",
    ),
    ("nanotron", "sequence_divisible_by_cp"): Case(
        passes={"cp": 2}, fails={"cp": 3}, reason="seq_len 8192 % (2 * cp) 6 = 2, must be 0"
    ),
    ("nanotron", "sequence_divisible_by_tp"): Case(fails={"tp": 3}, reason="seq_len 8192 % (tp * cp) 3 = 2, must be 0"),
    ("nanotron", "microbatches_fill_warm_up"): Case(
        passes={"num_microbatches": 3},
        fails={"num_microbatches": 2},
        reason="num_microbatches 2 must be at least pp 4 - 1 under 1f1b",
    ),
    ("llm-foundry", "no_tensor_parallelism"): Case(
        passes={"tp": 1},
        fails={"tp": 2},
        reason="tp 2 must be 1: LLM Foundry 0.22 is planned as data parallel only: its tensor parallelism "
        "cuts the MLP alone (tp_config strategy ffn)",
    ),
    ("llm-foundry", "no_expert_parallelism"): Case(
        scenario=MOE,
        fails={"ep": 2},
        reason="ep 2 and etp 1 must be 1: LLM Foundry 0.22 is planned as data parallel only: expert "
        "parallelism is that of MegaBlocks (moe_world_size)",
    ),
    ("accelerate", "no_expert_parallelism"): Case(
        scenario=MOE, fails={"etp": 2}, reason="ep 1 and etp 2 must be 1: Accelerate 1.15 has no expert parallelism"
    ),
    ("accelerate", "replicas_need_shards"): Case(
        passes=NO_ZERO | ALONE, fails=NO_ZERO, reason="dp_replicate 8 with tp 2 and cp 1 needs dp_shard 1 above 1"
    ),
    ("accelerate", "context_parallelism_is_sharded"): Case(
        passes=NO_ZERO | {"cp": 2, "cp_comm_type": A2A},
        fails=NO_ZERO | {"cp": 2, "cp_comm_type": ALL_GATHER},
        reason="cp 2 with zero_stage 0: context parallelism runs under FSDP2, zero_stage must be 2 or 3",
    ),
    ("accelerate", "fsdp_needs_ranks"): Case(
        passes={"zero_stage": 3, "dp": 1, "dp_shard": 1, "cp": 2},
        fails={"zero_stage": 3, "dp": 1, "dp_shard": 1},
        reason="zero_stage 3 with dp_shard 1 * cp 1 = 1: FSDP has nothing to shard over, zero_stage must be 0",
    ),
    ("accelerate", "a2a_needs_ulysses"): Case(
        scenario={"version": "1.10"},
        passes={"cp": 2},
        fails={"cp": 2, "cp_comm_type": A2A},
        reason="cp 2 by a2a: Accelerate 1.10 doesn't have it yet",
    ),
    ("accelerate", "a2a_shards_over_all_replicas"): Case(
        passes={"cp": 2, "cp_comm_type": ALL_GATHER, "dp_replicate": 2, "dp_shard": 4},
        fails={"cp": 2, "cp_comm_type": A2A, "dp_replicate": 2, "dp_shard": 4},
        reason="cp 2 by a2a runs under DeepSpeed, which shards over all replicas: dp_replicate 2 must be 1",
    ),
    ("accelerate", "sequence_divisible_by_cp"): Case(
        scenario={"seq_len": 8196},
        passes={"cp": 4, "cp_comm_type": A2A},
        fails={"cp": 4},
        reason="seq_len 8196 % (2 * cp) 8 = 4, must be 0",
    ),
    ("accelerate", "a2a_sequence_divisible_by_cp"): Case(
        scenario={"seq_len": 8196},
        passes={"cp": 4, "cp_comm_type": A2A},
        fails={"cp": 8, "cp_comm_type": A2A},
        reason="seq_len 8196 % cp 8 = 4, must be 0",
    ),
    ("accelerate", "a2a_heads_divisible_by_cp"): Case(
        passes={"cp": 16, "cp_comm_type": A2A},
        fails={"cp": 3, "cp_comm_type": A2A},
        reason="num_heads 32 % (tp * cp) 6 = 2, must be 0",
    ),
    ("accelerate", "a2a_kv_heads_match_cp"): Case(
        passes={"cp": 16, "cp_comm_type": A2A},
        fails={"tp": 1, "cp": 12, "cp_comm_type": A2A},
        reason="num_kv_heads 8 % (tp * cp) 12 = 8 and (tp * cp) 12 % num_kv_heads 8 = 4, one of them must be 0",
    ),
    ("maxtext", "heads_divisible_by_tp"): Case(fails={"tp": 3}, reason="num_heads 32 % tp 3 = 2, must be 0"),
    ("maxtext", "kv_heads_divisible_by_tp"): Case(
        passes={"tp": 8}, fails={"tp": 16}, reason="num_kv_heads 8 % tp 16 = 8, must be 0"
    ),
    ("maxtext", "chunks_are_equal"): Case(
        fails={"layout": Layout.LOSS_COUNTS},
        reason="num_layers 32 on pp 4 * vpp 1 as 8,9,8,7: every stage must hold as many layers as the next",
    ),
    ("maxtext", "pipeline_layers_of_one_kind"): Case(
        scenario=DEEPSEEK,
        passes={"pp": 1},
        fails={"pp": 4},
        reason="pp 4 with 3 leading dense layers: MaxText pipelines the expert layers alone and runs the "
        "dense ones on every stage, which no plan here says; pp must be 1",
    ),
    ("maxtext", "microbatches_divisible_by_pp"): Case(
        fails={"num_microbatches": 6}, reason="num_microbatches 6 % pp 4 = 2, must be 0"
    ),
    ("maxtext", "experts_divide_data_parallel"): Case(
        scenario=MOE, passes={"ep": 8}, fails={"ep": 8, "dp": 4}, reason="dp 4 % ep 8 = 4, must be 0"
    ),
    ("maxtext", "expert_tensor_parallel_is_tp"): Case(
        scenario=MOE,
        passes={"etp": 2},
        fails={"etp": 1},
        reason="etp 1 must be tp 2: one tensor axis cuts experts as well",
    ),
    ("maxtext", "replicas_need_full_sharding"): Case(
        passes={"zero_stage": 3, "dp_replicate": 2},
        fails={"dp_replicate": 2},
        reason="dp_replicate 2 with zero_stage 1: shard_optimizer_over_data takes the whole data axis, "
        "dp_replicate must be 1",
    ),
    ("maxtext", "ulysses_needs_tpu"): Case(
        passes={"cp": 2, "cp_comm_type": ALL_GATHER},
        fails={"cp": 2, "cp_comm_type": A2A},
        reason="a2a with cp 2: MaxText has it on TPUs, not on h100-sxm5-80gb",
    ),
    ("maxtext", "ring_needs_gpu"): Case(
        scenario=TPU,
        passes={"cp": 2, "cp_comm_type": A2A},
        fails={"cp": 2},
        reason="p2p with cp 2: MaxText has it on GPUs, not on tpu-v5p",
    ),
    ("maxtext", "ring_sequence_divisible"): Case(
        scenario={"seq_len": 8200}, passes={"cp": 2}, fails={"cp": 4}, reason="seq_len 8200 % cp^2 16 = 8, must be 0"
    ),
    ("maxtext", "ring_needs_even_cp"): Case(
        scenario={"seq_len": 8190},
        passes={"cp": 3, "cp_comm_type": ALL_GATHER},
        fails={"cp": 3},
        reason="cp 3 by p2p must be even: a balanced ring pairs its ranks",
    ),
    ("maxtext", "ring_without_mtp"): Case(
        scenario=DEEPSEEK,
        passes={"cp": 2, "cp_comm_type": ALL_GATHER},
        fails={"cp": 2},
        reason="cp 2 by p2p with 1 multi-token-prediction layers: a balanced ring has none",
    ),
    ("maxtext", "usp_needs_tpu"): Case(
        passes={"cp": 4, "cp_comm_type": ALL_GATHER},
        fails={"cp": 4, "cp_comm_type": HYBRID, "cp_a2a_degree": 2},
        reason="a2a+p2p with cp 4: MaxText has it on TPUs, not on h100-sxm5-80gb",
    ),
    ("maxtext", "usp_sequence_divisible"): Case(
        scenario=TPU | {"seq_len": 8200},
        passes={"cp": 4, "cp_comm_type": ALL_GATHER},
        fails={"cp": 4, "cp_comm_type": HYBRID, "cp_a2a_degree": 2},
        reason="seq_len 8200 % cp^2 16 = 8, must be 0",
    ),
    ("maxtext", "usp_without_mtp"): Case(
        scenario=TPU | DEEPSEEK,
        passes={"cp": 4, "cp_comm_type": ALL_GATHER},
        fails={"cp": 4, "cp_comm_type": HYBRID, "cp_a2a_degree": 2},
        reason="cp 4 by a2a+p2p with 1 multi-token-prediction layers: usp has none",
    ),
    ("maxtext", "hybrid_cp_heads_divisible"): Case(
        scenario=TPU,
        passes={"cp": 8, "cp_comm_type": HYBRID, "cp_a2a_degree": 4},
        fails={"cp": 6, "cp_comm_type": HYBRID, "cp_a2a_degree": 3},
        reason="num_heads 32 % (tp * cp_a2a_degree) 6 = 2, must be 0",
    ),
    ("maxtext", "hybrid_cp_kv_heads_divisible"): Case(
        scenario=TPU,
        passes={"cp": 8, "cp_comm_type": HYBRID, "cp_a2a_degree": 4},
        fails={"cp": 16, "cp_comm_type": HYBRID, "cp_a2a_degree": 8},
        reason="num_kv_heads 8 % (tp * cp_a2a_degree) 16 = 8, must be 0",
    ),
    ("maxtext", "sequence_divisible_by_cp"): Case(
        passes={"cp": 2}, fails={"cp": 3}, reason="seq_len 8192 % cp 3 = 2, must be 0"
    ),
    ("maxtext", "a2a_heads_divisible_by_cp"): Case(
        scenario=TPU,
        passes={"cp": 4, "cp_comm_type": A2A},
        fails={"cp": 3, "cp_comm_type": A2A},
        reason="num_heads 32 % (tp * cp) 6 = 2, must be 0",
    ),
    ("maxtext", "a2a_kv_heads_divisible_by_cp"): Case(
        scenario=TPU,
        passes={"cp": 4, "cp_comm_type": A2A},
        fails={"cp": 8, "cp_comm_type": A2A},
        reason="num_kv_heads 8 % (tp * cp) 16 = 8, must be 0",
    ),
    ("deepspeed", "optimizer_offload_is_sharded"): Case(
        passes={"offload": OPTIMIZER},
        fails=NO_ZERO | {"offload": OPTIMIZER},
        reason="offload optimizer with zero_stage 0, must be 1 to 3",
    ),
    ("deepspeed", "parameter_offload_is_sharded"): Case(
        passes={"offload": PARAMETERS, "zero_stage": 3},
        fails={"offload": PARAMETERS, "zero_stage": 2},
        reason="offload parameters with zero_stage 2, must be 3",
    ),
    ("deepspeed", "activation_offload_of_checkpoints"): Case(
        passes={"offload": ACTIVATIONS, "recompute": 2},
        fails={"offload": ACTIVATIONS, "recompute": 0},
        reason="offload activations with recompute none, must be full",
    ),
    ("torchtitan", "parameter_offload_is_sharded"): Case(
        scenario={"version": "0.2"},
        passes={"offload": PARAMETERS, "zero_stage": 3},
        fails=NO_ZERO | {"offload": PARAMETERS},
        reason="offload parameters with zero_stage 0, must be 2 or 3",
    ),
    ("accelerate", "parameter_offload_is_sharded"): Case(
        passes={"offload": PARAMETERS, "zero_stage": 3},
        fails={"offload": PARAMETERS, "zero_stage": 0},
        reason="offload parameters with zero_stage 0, must be 2 or 3",
    ),
}


def own_rules(framework: str) -> set[str]:
    """Rules of the framework's own at any of its versions."""
    general = {rule.name for rule in GENERAL_RULES}
    spec = load_framework(framework)
    return {rule.name for version in spec.versions for rule in rules_for(spec.at(version))} - general


@pytest.mark.parametrize("framework", sorted({framework for framework, _ in CASES}))
def test_every_rule_has_a_case(framework: str) -> None:
    assert own_rules(framework) == {rule for name, rule in CASES if name == framework}


@pytest.mark.parametrize("key", CASES, ids=" ".join)
def test_a_rule_passes_one_plan_and_says_why_it_refuses_another(key: tuple[str, str]) -> None:
    (framework, name), case = key, CASES[key]
    scenario = scenario_of(framework, **case.scenario)
    rule = next(rule for rule in rules_for(scenario.framework) if rule.name == name)

    def holds(changes: dict[str, int]) -> bool:
        # Only the axes that it declares: a rule that read another one would fail here.
        return bool(rule.holds(scenario, as_columns({axis: (BASE | changes)[axis] for axis in rule.axes})))

    assert holds(case.passes)
    assert not holds(case.fails)
    assert rule.reason(scenario, BASE | case.fails) == case.reason
    assert (rule, case.reason) in broken(scenario, BASE | case.fails)
    assert rule.source


def test_the_document_lists_every_rule_under_its_framework() -> None:
    document = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    sections = dict(part.split("\n", 1) for part in document.split("\n## ")[1:])
    for framework, rule in CASES:
        assert f"`{rule}`" in sections[load_framework(framework).title], (framework, rule)


@pytest.mark.parametrize("name", framework_names())
def test_names_of_rules_are_unique_at_every_version(name: str) -> None:
    spec = load_framework(name)
    for version in spec.versions:
        names = [rule.name for rule in rules_for(spec.at(version))]
        assert len(set(names)) == len(names)


def slugs(scenario: Scenario, row: dict[str, int]) -> set[str]:
    return {rule.name for rule, _ in broken(scenario, BASE | row)}


def test_a_sequence_without_context_parallelism_needs_no_pairs_since_torchtitan_0_3() -> None:
    odd = {"tp": 1, "pp": 1}
    rule = "sequence_divisible_by_cp_and_tp"
    assert rule in slugs(scenario_of("torchtitan", version="0.2", seq_len=8191), odd)
    assert rule not in slugs(scenario_of("torchtitan", version="0.3", seq_len=8191), odd)


def test_torchtitan_once_cut_experts_by_tp_beside_expert_parallelism() -> None:
    plan = {"tp": 2, "ep": 4, "etp": 2, "pp": 1}
    rule = "expert_tensor_parallel_follows_tp"
    assert rule not in slugs(scenario_of("torchtitan", "mixtral-8x7b", "0.2"), plan)
    assert rule in slugs(scenario_of("torchtitan", "mixtral-8x7b", "2026-08"), plan)


@pytest.mark.parametrize("name", ["megatron-bridge", "nemo"])
def test_what_runs_megatron_core_has_its_rules(name: str) -> None:
    assert own_rules(name) <= own_rules("megatron-core")
    assert {"heads_divisible_by_tp", "expert_mesh_divides_world"} <= own_rules(name)


def test_a_framework_of_which_no_rules_are_known_keeps_to_the_general_ones() -> None:
    spec = load_framework("megatron-core").model_copy(update={"rules": None})
    assert [rule.name for rule in rules_for(spec)] == [rule.name for rule in GENERAL_RULES if rule.applies_to(spec)]


def test_every_rule_set_is_some_framework_s() -> None:
    assert {load_framework(name).rules for name in framework_names()} - {None} == set(RULE_SETS)
