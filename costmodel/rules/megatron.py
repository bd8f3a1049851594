"""Rules of Megatron-LM / Megatron-Core, each with the check in its code that enforces it.

Checks that hold by construction of a plan have no rule here; docs/rules.md lists them.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules.megatron_pipeline import MEGATRON_PIPELINE_RULES
from costmodel.rules.rule import PlanColumns, Row, Rule, divisible_rule
from costmodel.scenario import Scenario
from costmodel.spec.plan import CP_COMM_TYPES

_REPOSITORY = "NVIDIA/Megatron-LM d98e8a64ddf3 (2026-08-22) "
_PARALLEL_STATE = _REPOSITORY + "megatron/core/parallel_state.py"
_CONFIG = _REPOSITORY + "megatron/core/transformer/transformer_config.py"
_LINEAR = _REPOSITORY + "megatron/core/tensor_parallel/layers.py:1038,1408"
_ARGUMENTS = _REPOSITORY + "megatron/training/arguments.py"
_A2A_HEADS = "NVIDIA/TransformerEngine: all-to-all attention asks for num_heads and num_gqa_groups % cp_size == 0"

_A2A = CP_COMM_TYPES.index("a2a")

# What several rules divide, and by what.
_TP = ("tp", lambda _, columns: columns["tp"])
_TP_CP = ("(tp * cp)", lambda _, columns: columns["tp"] * columns["cp"])
_STAGE_RANKS = ("tp * cp * dp", lambda _, columns: columns["tp"] * columns["cp"] * columns["dp"])
_HEADS = ("num_heads", lambda scenario, _: scenario.model.num_heads)
_KV_HEADS = ("num_kv_heads", lambda scenario, _: scenario.model.num_kv_heads)
_SEQ_LEN = ("seq_len", lambda scenario, _: scenario.workload.seq_len)


def _has_latent_attention(scenario: Scenario) -> bool:
    return scenario.model.mla is not None


def _experts_replicated(scenario: Scenario, columns: PlanColumns) -> Bools:
    instances = (columns["zero_stage"] >= 1) & (columns["dp_replicate"] > 1)
    return np.asarray(instances & (scenario.model.moe is not None))


def _kv_heads_fit(scenario: Scenario, columns: PlanColumns) -> Bools:
    heads, tp = scenario.model.num_kv_heads, columns["tp"]
    return np.asarray(_has_latent_attention(scenario) | (heads % tp == 0) | (tp % heads == 0))


def _kv_heads_fit_reason(scenario: Scenario, row: Row) -> str:
    heads, tp = scenario.model.num_kv_heads, row["tp"]
    return (
        f"num_kv_heads {heads} % tp {tp} = {heads % tp} and tp {tp} % num_kv_heads {heads} = {tp % heads}, "
        "one of them must be 0"
    )


def _uses_a2a(columns: PlanColumns) -> Bools:
    return np.asarray((columns["cp"] > 1) & (columns["cp_comm_type"] == _A2A))


def _has_dense_mlp(scenario: Scenario) -> bool:
    return scenario.model.num_dense_layers > 0


def _expert_ffn(scenario: Scenario) -> int:
    return scenario.model.moe.expert_ffn_hidden_size if scenario.model.moe else 0


def _shared_expert_ffn(scenario: Scenario) -> int:
    return scenario.model.moe.shared_expert_ffn_hidden_size if scenario.model.moe else 0


def _needs_instances(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["zero_stage"] == 0) | (columns["dp_replicate"] == 1))


def _fsdp_optimizer(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["zero_stage"] < 2) | scenario.workload.optimizer.name.startswith(("adam", "sgd")))


MEGATRON_RULES: tuple[Rule, ...] = (
    *MEGATRON_PIPELINE_RULES,
    divisible_rule(
        name="expert_mesh_divides_world",
        axes=("tp", "cp", "dp", "ep", "etp"),
        # The world is pp times the dividend, and the check is world % (etp * ep * pp).
        dividend=_STAGE_RANKS,
        divisor=("(ep * etp)", lambda _, columns: columns["ep"] * columns["etp"]),
        source=_PARALLEL_STATE + ":882",
    ),
    divisible_rule(
        name="heads_divisible_by_tp",
        axes=("tp",),
        dividend=_HEADS,
        divisor=_TP,
        source=_CONFIG + ":1446",
    ),
    divisible_rule(
        name="kv_heads_divisible_by_tp",
        axes=("tp",),
        dividend=_KV_HEADS,
        divisor=_TP,
        # Latent attention expands one latent to the full number of heads on every rank.
        when=lambda scenario, _: not _has_latent_attention(scenario),
        without_feature="kv_replication",
        source="up to 0.15: ms-swift issue 8219",
    ),
    Rule(
        name="kv_heads_match_tp",
        axes=("tp",),
        holds=_kv_heads_fit,
        reason=_kv_heads_fit_reason,
        with_feature="kv_replication",
        source=_CONFIG + ":1465",
    ),
    divisible_rule(
        name="hidden_divisible_by_tp",
        axes=("tp",),
        dividend=("hidden_size", lambda scenario, _: scenario.model.hidden_size),
        divisor=_TP,
        source=_LINEAR,
    ),
    divisible_rule(
        name="ffn_divisible_by_tp",
        axes=("tp",),
        dividend=("ffn_hidden_size", lambda scenario, _: scenario.model.ffn_hidden_size),
        divisor=_TP,
        when=lambda scenario, _: _has_dense_mlp(scenario),
        source=_LINEAR,
    ),
    divisible_rule(
        name="shared_expert_ffn_divisible_by_tp",
        axes=("tp",),
        dividend=("shared_expert_ffn_hidden_size", lambda scenario, _: _shared_expert_ffn(scenario)),
        divisor=_TP,
        source=_LINEAR,
    ),
    divisible_rule(
        name="expert_ffn_divisible_by_etp",
        axes=("etp",),
        dividend=("expert_ffn_hidden_size", lambda scenario, _: _expert_ffn(scenario)),
        divisor=("etp", lambda _, columns: columns["etp"]),
        source=_LINEAR,
    ),
    divisible_rule(
        name="sequence_divisible_by_cp",
        axes=("cp",),
        dividend=_SEQ_LEN,
        divisor=("(2 * cp)", lambda _, columns: 2 * columns["cp"]),
        when=lambda _, columns: columns["cp"] > 1,
        source=_ARGUMENTS + ":1335",
    ),
    divisible_rule(
        name="sequence_divisible_by_tp",
        axes=("tp", "cp"),
        # Sequence parallelism is on whenever tp > 1. Together with the rule above: seq_len % (cp * lcm(2, tp)).
        dividend=_SEQ_LEN,
        divisor=("(cp * tp)", lambda _, columns: columns["cp"] * columns["tp"]),
        when=lambda _, columns: columns["tp"] > 1,
        source=_REPOSITORY + "megatron/core/tensor_parallel/mappings.py:72",
    ),
    Rule(
        name="a2a_needs_ulysses",
        axes=("cp", "cp_comm_type"),
        holds=lambda _, columns: np.asarray(~_uses_a2a(columns)),
        reason=lambda s, row: f"cp {row['cp']} by a2a: {s.framework.title} {s.framework.version} doesn't have it yet",
        without_feature="ulysses",
        source="Megatron-Core release notes (cp_comm_type)",
    ),
    divisible_rule(
        name="a2a_heads_divisible_by_cp",
        axes=("tp", "cp", "cp_comm_type"),
        dividend=_HEADS,
        divisor=_TP_CP,
        when=lambda _, columns: _uses_a2a(columns),
        source=_A2A_HEADS,
    ),
    divisible_rule(
        name="a2a_kv_heads_divisible_by_cp",
        axes=("tp", "cp", "cp_comm_type"),
        # A rank with one replicated KV head can't share it over cp, so replication needs no case of its own.
        dividend=_KV_HEADS,
        divisor=_TP_CP,
        when=lambda scenario, columns: _uses_a2a(columns) & (not _has_latent_attention(scenario)),
        source=_A2A_HEADS,
    ),
    Rule(
        name="gradient_sharding_needs_megatron_fsdp",
        axes=("zero_stage",),
        holds=lambda _, columns: np.asarray(columns["zero_stage"] < 2),
        reason=lambda s, row: f"zero_stage {row['zero_stage']} needs Megatron-FSDP, which {s.framework.version} lacks",
        without_feature="megatron_fsdp",
        source=_ARGUMENTS + ":1118",
    ),
    Rule(
        name="megatron_fsdp_optimizer",
        axes=("zero_stage",),
        holds=_fsdp_optimizer,
        reason=lambda s, row: (
            f"zero_stage {row['zero_stage']} with optimizer {s.workload.optimizer.name}: Megatron-FSDP has adam and sgd"
        ),
        source=_ARGUMENTS + ":1118-1170,1735",
    ),
    Rule(
        name="replicas_need_optimizer_instances",
        axes=("zero_stage", "dp_replicate"),
        holds=_needs_instances,
        reason=lambda s, row: (
            f"dp_replicate {row['dp_replicate']} with zero_stage {row['zero_stage']}: {s.framework.version} can't run "
            "several instances of the sharded optimizer, dp_replicate must be 1"
        ),
        without_feature="optimizer_instances",
        source=_PARALLEL_STATE + ":922",
    ),
    divisible_rule(
        name="expert_dp_divisible_by_replicas",
        axes=("tp", "cp", "dp", "ep", "etp", "zero_stage", "dp_replicate"),
        # For dense parameters dp * cp is a multiple of dp_replicate by the meaning of the axes; for experts it isn't.
        dividend=_STAGE_RANKS,
        divisor=(
            "(ep * etp * dp_replicate)",
            lambda _, columns: columns["ep"] * columns["etp"] * columns["dp_replicate"],
        ),
        when=_experts_replicated,
        source=_PARALLEL_STATE + ", initialize_model_parallel: expert dp % num_distributed_optimizer_instances",
    ),
)
