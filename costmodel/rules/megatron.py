"""Rules of Megatron-Core, which Megatron-Bridge and NeMo run, each with the check in its code that enforces it.

Checks that hold by construction of a plan have no rule here; docs/rules.md lists them.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules import shared
from costmodel.rules.context_parallel import hybrid_heads_divisible, hybrid_kv_heads_divisible
from costmodel.rules.experts import MEGATRON_EXPERT_RULES
from costmodel.rules.megatron_model import MEGATRON_MODEL_RULES
from costmodel.rules.megatron_pipeline import MEGATRON_PIPELINE_RULES
from costmodel.rules.offload import MEGATRON_OFFLOAD_RULES
from costmodel.rules.recompute import MEGATRON_RECOMPUTE_RULES
from costmodel.rules.rule import PlanColumns, Row, Rule, divisible_rule
from costmodel.scenario import Scenario
from costmodel.spec.plan import CP_COMM_TYPES, CpCommType

_REPOSITORY = "NVIDIA/Megatron-LM d98e8a64ddf3 (2026-08-22) "
_PARALLEL_STATE = _REPOSITORY + "megatron/core/parallel_state.py"
_CONFIG = _REPOSITORY + "megatron/core/transformer/transformer_config.py"
_LINEAR = _REPOSITORY + "megatron/core/tensor_parallel/layers.py:1038,1408"
_ARGUMENTS = _REPOSITORY + "megatron/training/arguments.py"
_A2A_HEADS = "NVIDIA/TransformerEngine: all-to-all attention asks for num_heads and num_gqa_groups % cp_size == 0"


def _experts_replicated(scenario: Scenario, columns: PlanColumns) -> Bools:
    instances = (columns["zero_stage"] >= 1) & (columns["dp_replicate"] > 1)
    return np.asarray(instances & (scenario.model.moe is not None))


def _kv_heads_fit(scenario: Scenario, columns: PlanColumns) -> Bools:
    heads, tp = scenario.model.num_kv_heads, columns["tp"]
    return np.asarray(shared.has_latent_attention(scenario) | (heads % tp == 0) | (tp % heads == 0))


def _kv_heads_fit_reason(scenario: Scenario, row: Row) -> str:
    heads, tp = scenario.model.num_kv_heads, row["tp"]
    return (
        f"num_kv_heads {heads} % tp {tp} = {heads % tp} and tp {tp} % num_kv_heads {heads} = {tp % heads}, "
        "one of them must be 0"
    )


def _qkv_width(scenario: Scenario, _: PlanColumns) -> int:
    model = scenario.model
    return (model.num_heads + 2 * model.num_kv_heads) * model.head_dim


def _expert_ffn(scenario: Scenario) -> int:
    return scenario.model.moe.expert_ffn_hidden_size if scenario.model.moe else 0


def _shared_expert_ffn(scenario: Scenario) -> int:
    return scenario.model.moe.shared_expert_ffn_hidden_size if scenario.model.moe else 0


def _needs_instances(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["zero_stage"] == 0) | (columns["dp_replicate"] == 1))


def _fsdp_optimizer(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["zero_stage"] < 2) | scenario.workload.optimizer.name.startswith(("adam", "sgd")))


def _needs_cp_comm_type(name: str, kind: CpCommType) -> Rule:
    code = CP_COMM_TYPES.index(kind)
    return Rule(
        name=name,
        axes=("cp", "cp_comm_type"),
        holds=lambda _, columns: np.asarray((columns["cp"] == 1) | (columns["cp_comm_type"] != code)),
        reason=lambda s, row: (
            f"cp {row['cp']} by {kind}: {s.framework.title} {s.framework.version} doesn't have it yet"
        ),
        without_feature="cp_comm_type",
        source="megatron-core (PyPI) transformer/transformer_config.py: 0.10.0 has cp_comm_type, 0.9.0 hasn't",
    )


MEGATRON_RULES: tuple[Rule, ...] = (
    *MEGATRON_PIPELINE_RULES,
    *MEGATRON_MODEL_RULES,
    *MEGATRON_EXPERT_RULES,
    shared.expert_mesh_divides_world(_PARALLEL_STATE + ":882"),
    shared.heads_divisible_by_tp(_CONFIG + ":1446"),
    shared.kv_heads_divisible_by_tp(
        "up to 0.15: megatron-core 0.15.0 (PyPI) megatron/core/transformer/transformer_config.py:758",
        without_feature="kv_replication",
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
        name="qkv_divisible_by_tp",
        axes=("tp",),
        # One matrix makes queries, keys and values; with as many KV heads as ranks the heads' own rules say it all.
        dividend=("(num_heads + 2 * num_kv_heads) * head_dim", _qkv_width),
        divisor=shared.TP,
        when=lambda scenario, columns: (
            (not shared.has_latent_attention(scenario)) & (columns["tp"] > scenario.model.num_kv_heads)
        ),
        with_feature="kv_replication",
        source="megatron-core 0.16.1 (PyPI) megatron/core/transformer/attention.py:1264, tensor_parallel/layers.py:842",
    ),
    shared.ffn_divisible_by_tp(_LINEAR),
    divisible_rule(
        name="shared_expert_ffn_divisible_by_tp",
        axes=("tp",),
        dividend=("shared_expert_ffn_hidden_size", lambda scenario, _: _shared_expert_ffn(scenario)),
        divisor=shared.TP,
        source=_LINEAR,
    ),
    divisible_rule(
        name="expert_ffn_divisible_by_etp",
        axes=("etp",),
        dividend=("expert_ffn_hidden_size", lambda scenario, _: _expert_ffn(scenario)),
        divisor=("etp", lambda _, columns: columns["etp"]),
        source=_LINEAR,
    ),
    shared.sequence_divisible_by_pairs(_ARGUMENTS + ":1335"),
    # Together with the rule above: seq_len % (cp * lcm(2, tp)).
    shared.sequence_divisible_by_tp(_REPOSITORY + "megatron/core/tensor_parallel/mappings.py:72"),
    _needs_cp_comm_type("a2a_needs_ulysses", "a2a"),
    _needs_cp_comm_type("all_gather_needs_cp_comm_type", "all_gather"),
    _needs_cp_comm_type("hybrid_cp_needs_cp_comm_type", "a2a+p2p"),
    shared.a2a_heads_divisible_by_cp(_A2A_HEADS),
    hybrid_heads_divisible(_A2A_HEADS),
    hybrid_kv_heads_divisible(_A2A_HEADS),
    # A rank with one replicated KV head can't share it over cp, so replication needs no case of its own.
    shared.a2a_kv_heads_divisible_by_cp(_A2A_HEADS),
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
        dividend=shared.STAGE_RANKS,
        divisor=(
            "(ep * etp * dp_replicate)",
            lambda _, columns: columns["ep"] * columns["etp"] * columns["dp_replicate"],
        ),
        when=_experts_replicated,
        # Before that experts are sharded over all their replicas.
        with_feature="expert_optimizer_instances",
        source=_PARALLEL_STATE + ", initialize_model_parallel: expert dp % num_distributed_optimizer_instances; "
        "megatron-core 0.13.0 (PyPI) megatron/core/parallel_state.py:1278, 0.12.0 hasn't it",
    ),
    *MEGATRON_OFFLOAD_RULES,
    *MEGATRON_RECOMPUTE_RULES,
)
