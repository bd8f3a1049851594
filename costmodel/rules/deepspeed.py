"""Rules of DeepSpeed: ZeRO, AutoTP, Ulysses sequence parallelism, pipeline modules, native experts and AutoEP.

Checks that hold by construction of a plan have no rule here; docs/rules.md lists them.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules import shared
from costmodel.rules.offload import DEEPSPEED_OFFLOAD_RULES
from costmodel.rules.rule import PlanColumns, Row, Rule, divisible_rule
from costmodel.rules.sharding import zero_plus_bits, zero_plus_words
from costmodel.scenario import Scenario
from costmodel.spec.options import GRADIENT_SYNCS

_OLD = "deepspeed 0.18.2 (PyPI) deepspeed/"
_NEW = "deepspeed 0.19.8 (PyPI) deepspeed/"
_ULYSSES = _NEW + "runtime/sequence_parallel/ulysses_sp.py"
EVERY_MICRO_BATCH = GRADIENT_SYNCS.index("microbatch")


def _experts_fit(scenario: Scenario, columns: PlanColumns) -> Bools:
    """Native experts fold over the replicas, AutoEP's over all ranks of a stage where nothing else splits it."""
    native = (columns["cp"] * columns["dp"]) % columns["ep"] == 0
    alone = (columns["etp"] == 1) & (columns["pp"] == 1) & (columns["cp"] == 1)
    return np.asarray(native | alone & scenario.framework.has("auto_ep"))


def _experts_fit_reason(scenario: Scenario, row: Row) -> str:
    ranks, ep = row["cp"] * row["dp"], row["ep"]
    other = ", or etp, pp and cp 1 for AutoEP" if scenario.framework.has("auto_ep") else ""
    return f"cp * dp {ranks} % ep {ep} = {ranks % ep}, must be 0{other}"


def _expert_tp(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["etp"] == 1) | (columns["etp"] == columns["tp"]))


def _zero_3_auto_ep(_: Scenario, columns: PlanColumns) -> Bools:
    together = (columns["ep"] > 1) & (columns["zero_stage"] == 3)
    return np.asarray(~together | ((columns["cp"] == 1) & (columns["etp"] == 1)))


DEEPSPEED_RULES: tuple[Rule, ...] = (
    Rule(
        name="pipeline_needs_zero_below_2",
        axes=("pp", "zero_stage"),
        holds=lambda _, c: np.asarray((c["pp"] == 1) | (c["zero_stage"] < 2)),
        reason=lambda _, row: f"zero_stage {row['zero_stage']} with pp {row['pp']}: must be 0 or 1 under a pipeline",
        source=_NEW + "runtime/pipe/engine.py:76",
    ),
    Rule(
        name="pipeline_without_context_parallelism",
        axes=("pp", "cp"),
        holds=lambda _, c: np.asarray((c["pp"] == 1) | (c["cp"] == 1)),
        reason=lambda _, row: f"cp {row['cp']} with pp {row['pp']}: pipeline modules know no sequence parallel ranks",
        source=_NEW + "runtime/pipe/engine.py:103-106, runtime/config.py:468",
    ),
    Rule(
        name="auto_tp_needs_zero_below_3",
        axes=("tp", "zero_stage"),
        holds=lambda _, c: np.asarray((c["tp"] == 1) | (c["zero_stage"] < 3)),
        reason=lambda s, row: (
            f"zero_stage 3 with tp {row['tp']}: DeepSpeed {s.framework.version} stops at 2 with AutoTP"
        ),
        without_feature="auto_tp_zero_3",
        source=_OLD + "runtime/engine.py:473",
    ),
    Rule(
        name="replicas_need_mics",
        axes=("zero_stage", "dp_replicate"),
        holds=lambda _, c: np.asarray((c["dp_replicate"] == 1) | np.isin(c["zero_stage"], (0, 3))),
        reason=lambda _, row: (
            f"dp_replicate {row['dp_replicate']} with zero_stage {row['zero_stage']}: only stage 3 shards over fewer "
            "than all replicas (MiCS)"
        ),
        without_feature="mics_removed",
        source=_OLD + "runtime/engine.py:910-929",
    ),
    shared.no_hybrid_sharding(_NEW + "runtime/config.py:121", with_feature="mics_removed"),
    shared.expert_mesh_divides_world(_NEW + "module_inject/auto_ep_folding.py:111"),
    Rule(
        name="experts_divide_data_parallel",
        axes=("cp", "dp", "pp", "ep", "etp"),
        holds=_experts_fit,
        reason=_experts_fit_reason,
        source=_NEW + "utils/groups.py:634, module_inject/auto_ep_folding.py:206-217",
    ),
    Rule(
        name="expert_tensor_parallel_is_1_or_tp",
        axes=("tp", "etp"),
        holds=_expert_tp,
        reason=lambda _, row: (
            f"etp {row['etp']} must be 1 or tp {row['tp']}: enable_expert_tensor_parallelism is a switch"
        ),
        source=_NEW + "moe/layer.py",
    ),
    Rule(
        name="zero_3_without_expert_parallelism",
        axes=("ep", "zero_stage"),
        holds=lambda _, c: np.asarray((c["ep"] == 1) | (c["zero_stage"] < 3)),
        reason=lambda s, row: (
            f"ep {row['ep']} with zero_stage 3: DeepSpeed {s.framework.version} has no MoE under stage 3"
        ),
        without_feature="auto_ep",
        source="deepspeedai/DeepSpeed edaa72212672 (2026-08-22) runtime/engine.py:1884: native MoE not with ZeRO-3",
    ),
    Rule(
        name="zero_3_experts_without_context_parallelism",
        axes=("cp", "ep", "etp", "zero_stage"),
        holds=_zero_3_auto_ep,
        reason=lambda _, row: (
            f"ep {row['ep']} with zero_stage 3, cp {row['cp']} and etp {row['etp']}: AutoEP under stage 3 needs cp 1 "
            "and etp 1"
        ),
        with_feature="auto_ep",
        source=_NEW + "runtime/engine.py:2214-2231",
    ),
    Rule(
        name="zero_plus_without_experts",
        axes=("ep", "zero_plus"),
        holds=lambda _, c: np.asarray((c["ep"] == 1) | (c["zero_plus"] & zero_plus_bits("hpz", "qgz") == 0)),
        reason=lambda _, row: (
            f"zero_plus {zero_plus_words(row)} with ep {row['ep']}: AutoEP under stage 3 has neither qgz nor hpz"
        ),
        with_feature="auto_ep",
        source=_NEW + "runtime/engine.py:2222-2227",
    ),
    Rule(
        name="second_copy_without_model_parallelism",
        axes=("tp", "cp", "zero_plus"),
        holds=lambda _, c: np.asarray((c["tp"] * c["cp"] == 1) | (c["zero_plus"] & zero_plus_bits("hpz", "qgz") == 0)),
        reason=lambda _, row: (
            f"zero_plus {zero_plus_words(row)} with tp {row['tp']} and cp {row['cp']}: the groups inside a node are of "
            "consecutive ranks, whatever else these share"
        ),
        source=_NEW + "utils/groups.py:741-763, 943-950",
    ),
    Rule(
        name="second_copy_without_replicas",
        axes=("dp_replicate", "zero_plus"),
        holds=lambda _, c: np.asarray((c["dp_replicate"] == 1) | (c["zero_plus"] == 0)),
        reason=lambda _, row: (
            f"zero_plus {zero_plus_words(row)} with dp_replicate {row['dp_replicate']}: MiCS has its own class of "
            "parameters, which knows none of it"
        ),
        without_feature="mics_removed",
        source=_OLD + "runtime/zero/mics.py, MiCS_Init",
    ),
    Rule(
        name="gradients_accumulate_sharded",
        axes=("zero_stage", "gradient_sync"),
        holds=lambda _, c: np.asarray((c["zero_stage"] < 2) | (c["gradient_sync"] == EVERY_MICRO_BATCH)),
        reason=lambda s, row: (
            f"gradient_sync step with zero_stage {row['zero_stage']}: DeepSpeed {s.framework.version} has no no_sync "
            "where gradients are partitioned"
        ),
        without_feature="coalesced_reduction",
        source=_OLD + "runtime/engine.py:2332",
    ),
    divisible_rule(
        name="sequence_divisible_by_cp",
        axes=("cp",),
        dividend=shared.SEQ_LEN,
        divisor=shared.CP,
        source=_ULYSSES + ":707",
    ),
    shared.a2a_heads_divisible_by_cp(_ULYSSES + ":147"),
    shared.a2a_kv_heads_match_cp(_ULYSSES + ":149"),
    *DEEPSPEED_OFFLOAD_RULES,
)
