"""Rules of Hugging Face Accelerate: FSDP2 with tensor and context parallelism, or Ulysses under DeepSpeed."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules import shared
from costmodel.rules.offload import ACCELERATE_OFFLOAD_RULES
from costmodel.rules.rule import PlanColumns, Rule, divisible_rule
from costmodel.scenario import Scenario

_CONFIG = "accelerate 1.15.0 (PyPI) accelerate/parallelism_config.py"
_DOCS = "accelerate documentation, context parallelism guide: the sequence is cut into 2 * cp_size chunks"
_ULYSSES = "deepspeed 0.19.8 (PyPI) deepspeed/runtime/sequence_parallel/ulysses_sp.py"


def _not_a2a(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray(~shared.uses_a2a(columns))


def _replicas_need_shards(_: Scenario, columns: PlanColumns) -> Bools:
    # Ulysses is sp, not cp, in its words, and this check looks at tp and cp.
    more = (columns["tp"] > 1) | (columns["cp"] > 1) & ~shared.uses_a2a(columns)
    return np.asarray(~more | (columns["dp_replicate"] == 1) | (columns["dp_shard"] > 1))


def _context_is_sharded(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["cp"] == 1) | shared.uses_a2a(columns) | (columns["zero_stage"] >= 2))


def _something_to_shard(_: Scenario, columns: PlanColumns) -> Bools:
    ranks = columns["dp_shard"] * columns["cp"]
    return np.asarray((columns["zero_stage"] < 2) | (ranks > 1))


def _a2a_shards_everywhere(_: Scenario, columns: PlanColumns) -> Bools:
    unsharded = (columns["zero_stage"] == 0) | (columns["dp_replicate"] == 1)
    return np.asarray(~shared.uses_a2a(columns) | unsharded)


# Pipelines are not on offer in its catalog file, which general rules read.
ACCELERATE_RULES: tuple[Rule, ...] = (
    shared.without_axes(
        "no_expert_parallelism",
        "ep",
        "etp",
        what="has no expert parallelism",
        source=_CONFIG + ": dp_replicate, dp_shard, cp, sp, tp are all its sizes",
    ),
    Rule(
        name="replicas_need_shards",
        axes=("tp", "cp", "cp_comm_type", "dp_replicate", "dp_shard"),
        holds=_replicas_need_shards,
        reason=lambda _, row: (
            f"dp_replicate {row['dp_replicate']} with tp {row['tp']} and cp {row['cp']} needs dp_shard "
            f"{row['dp_shard']} above 1"
        ),
        source=_CONFIG + ":318",
    ),
    Rule(
        name="context_parallelism_is_sharded",
        axes=("cp", "cp_comm_type", "zero_stage"),
        holds=_context_is_sharded,
        reason=lambda _, row: (
            f"cp {row['cp']} with zero_stage {row['zero_stage']}: context parallelism runs under FSDP2, zero_stage "
            "must be 2 or 3"
        ),
        source="accelerate 1.15.0 (PyPI) accelerate/accelerator.py:4175",
    ),
    Rule(
        name="fsdp_needs_ranks",
        axes=("cp", "zero_stage", "dp_shard"),
        holds=_something_to_shard,
        reason=lambda _, row: (
            f"zero_stage {row['zero_stage']} with dp_shard {row['dp_shard']} * cp {row['cp']} = 1: FSDP has nothing to "
            "shard over, zero_stage must be 0"
        ),
        with_feature="empty_fsdp_refused",
        source=_CONFIG + ", _validate_accelerator",
    ),
    Rule(
        name="a2a_needs_ulysses",
        axes=("cp", "cp_comm_type"),
        holds=_not_a2a,
        reason=lambda s, row: f"cp {row['cp']} by a2a: {s.framework.title} {s.framework.version} doesn't have it yet",
        without_feature="ulysses",
        source="accelerate 1.10.0 (PyPI) accelerate/parallelism_config.py has no sp_size, 1.12.0 has",
    ),
    Rule(
        name="a2a_shards_over_all_replicas",
        axes=("cp", "cp_comm_type", "zero_stage", "dp_replicate"),
        holds=_a2a_shards_everywhere,
        reason=lambda _, row: (
            f"cp {row['cp']} by a2a runs under DeepSpeed, which shards over all replicas: dp_replicate "
            f"{row['dp_replicate']} must be 1"
        ),
        source="deepspeed 0.19.8 (PyPI) deepspeed/runtime/config.py:121",
    ),
    shared.sequence_divisible_by_pairs(_DOCS, when=lambda _, c: ~shared.uses_a2a(c), axes=("cp", "cp_comm_type")),
    divisible_rule(
        name="a2a_sequence_divisible_by_cp",
        axes=("cp", "cp_comm_type"),
        dividend=shared.SEQ_LEN,
        divisor=shared.CP,
        when=lambda _, c: shared.uses_a2a(c),
        source=_ULYSSES + ":707",
    ),
    shared.a2a_heads_divisible_by_cp(_ULYSSES + ":147"),
    shared.a2a_kv_heads_match_cp(_ULYSSES + ":149"),
    *ACCELERATE_OFFLOAD_RULES,
)
