"""Rules of MaxText: a pipeline of equal stages, context parallelism by kind of device, experts on an axis of the batch.

Checks that hold by construction of a plan have no rule here; docs/rules.md lists them.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules import shared
from costmodel.rules.context_parallel import hybrid_heads_divisible, hybrid_kv_heads_divisible, uses_hybrid
from costmodel.rules.layouts import LAYOUT_AXES, Chunks, chunks_of, per_layout, visited
from costmodel.rules.rule import PlanColumns, Row, Rule, divisible_rule
from costmodel.scenario import Scenario
from costmodel.stages import shortened

_REPOSITORY = "AI-Hypercomputer/maxtext e591f30cbbf2 (2026-08-22) src/maxtext/"
_TYPES = _REPOSITORY + "configs/types.py"
_SHARDING = "JAX: the size of a sharded dimension is a multiple of its mesh axes; " + _REPOSITORY + "configs/base.yml"
_USP = _REPOSITORY + "layers: USP (Ulysses over ring) is TPU attention in train mode"
_TPU_FAMILY = "tpu"


def _on_tpu(scenario: Scenario) -> bool:
    return scenario.cluster.accelerator.family == _TPU_FAMILY


def _uses_ring(columns: PlanColumns) -> Bools:
    return np.asarray((columns["cp"] > 1) & (columns["cp_comm_type"] == shared.P2P))


def _equal_chunks(scenario: Scenario, columns: PlanColumns) -> Bools:
    return per_layout(scenario, columns, _is_even)


def _is_even(chunks: Chunks | None) -> bool:
    return chunks is None or len(set(visited(chunks))) == 1


def _equal_chunks_reason(scenario: Scenario, row: Row) -> str:
    layers, pp, vpp = scenario.model.num_layers, row["pp"], row["vpp"]
    chunks = chunks_of(scenario, row)
    split = shortened(visited(chunks)) if chunks else "nothing"
    return f"num_layers {layers} on pp {pp} * vpp {vpp} as {split}: every stage must hold as many layers as the next"


def _one_kind(scenario: Scenario, columns: PlanColumns) -> Bools:
    moe = scenario.model.moe
    return np.asarray((columns["pp"] == 1) | (moe is None or moe.num_dense_layers == 0))


def _one_kind_reason(scenario: Scenario, row: Row) -> str:
    dense = scenario.model.num_dense_layers
    return (
        f"pp {row['pp']} with {dense} leading dense layers: MaxText pipelines the expert layers alone and runs the "
        "dense ones on every stage, which no plan here says; pp must be 1"
    )


def _ulysses_device(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray(~shared.uses_a2a(columns) | _on_tpu(scenario))


def _ring_device(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray(~_uses_ring(columns) | (not _on_tpu(scenario)))


def _device_reason(scenario: Scenario, row: Row) -> str:
    accelerator = scenario.cluster.accelerator
    return f"cp {row['cp']}: MaxText has it on {'GPUs' if _on_tpu(scenario) else 'TPUs'}, not on {accelerator.name}"


MAXTEXT_RULES: tuple[Rule, ...] = (
    shared.heads_divisible_by_tp(_SHARDING),
    shared.kv_heads_divisible_by_tp(_SHARDING),
    Rule(
        name="chunks_are_equal",
        axes=LAYOUT_AXES,
        holds=_equal_chunks,
        reason=_equal_chunks_reason,
        source=_TYPES + ":3565-3600: stages * repeats * layers_per_stage == pipeline_parallel_layers",
    ),
    Rule(
        name="pipeline_layers_of_one_kind",
        axes=("pp",),
        holds=_one_kind,
        reason=_one_kind_reason,
        source=_TYPES + ":3565: pipeline_parallel_layers leaves out first_num_dense_layers",
    ),
    divisible_rule(
        name="microbatches_divisible_by_pp",
        axes=("pp", "num_microbatches"),
        dividend=shared.NUM_MICROBATCHES,
        divisor=("pp", lambda _, columns: columns["pp"]),
        source=_TYPES + ":3600-3624",
    ),
    divisible_rule(
        name="experts_divide_data_parallel",
        axes=("dp", "ep"),
        dividend=("dp", lambda _, columns: columns["dp"]),
        divisor=("ep", lambda _, columns: columns["ep"]),
        source=_REPOSITORY + "configs/base.yml: the expert axis carries the batch outside the experts",
    ),
    Rule(
        name="expert_tensor_parallel_is_tp",
        axes=("tp", "etp"),
        holds=lambda s, c: np.asarray((not shared.has_experts(s)) | (c["etp"] == c["tp"])),
        reason=lambda _, row: f"etp {row['etp']} must be tp {row['tp']}: one tensor axis cuts experts as well",
        source=_REPOSITORY + "configs/base.yml: mlp on the tensor axis",
    ),
    Rule(
        name="replicas_need_full_sharding",
        axes=("zero_stage", "dp_replicate"),
        holds=lambda _, c: np.asarray((c["zero_stage"] != 1) | (c["dp_replicate"] == 1)),
        reason=lambda _, row: (
            f"dp_replicate {row['dp_replicate']} with zero_stage 1: shard_optimizer_over_data takes the whole data "
            "axis, dp_replicate must be 1"
        ),
        source=_TYPES + ": shard_optimizer_over_data",
    ),
    Rule(
        name="ulysses_needs_tpu",
        axes=("cp", "cp_comm_type"),
        holds=_ulysses_device,
        reason=lambda s, row: "a2a with " + _device_reason(s, row),
        source=_TYPES + ": context_parallel_strategy ulysses",
    ),
    Rule(
        name="ring_needs_gpu",
        axes=("cp", "cp_comm_type"),
        holds=_ring_device,
        reason=lambda s, row: "p2p with " + _device_reason(s, row),
        source=_TYPES + ": context_parallel_strategy ring",
    ),
    divisible_rule(
        name="ring_sequence_divisible",
        axes=("cp", "cp_comm_type"),
        dividend=shared.SEQ_LEN,
        divisor=("cp^2", lambda _, columns: columns["cp"] ** 2),
        when=lambda _, columns: _uses_ring(columns),
        source=_TYPES + ": ring",
    ),
    Rule(
        name="ring_needs_even_cp",
        axes=("cp", "cp_comm_type"),
        holds=lambda _, c: np.asarray(~_uses_ring(c) | (c["cp"] % 2 == 0)),
        reason=lambda _, row: f"cp {row['cp']} by p2p must be even: a balanced ring pairs its ranks",
        source=_TYPES + ": ring with context_parallel_load_balance, the default",
    ),
    Rule(
        name="ring_without_mtp",
        axes=("cp", "cp_comm_type"),
        holds=lambda s, c: np.asarray(~_uses_ring(c) | (s.model.num_mtp_layers == 0)),
        reason=lambda s, row: (
            f"cp {row['cp']} by p2p with {s.model.num_mtp_layers} multi-token-prediction layers: "
            "a balanced ring has none"
        ),
        source=_TYPES + ": ring with context_parallel_load_balance, the default",
    ),
    Rule(
        name="usp_needs_tpu",
        axes=("cp", "cp_comm_type"),
        holds=lambda s, c: np.asarray(~uses_hybrid(c) | _on_tpu(s)),
        reason=lambda s, row: "a2a+p2p with " + _device_reason(s, row),
        source=_USP,
    ),
    divisible_rule(
        name="usp_sequence_divisible",
        axes=("cp", "cp_comm_type"),
        dividend=shared.SEQ_LEN,
        divisor=("cp^2", lambda _, columns: columns["cp"] ** 2),
        when=lambda _, columns: uses_hybrid(columns),
        source=_TYPES + ": usp",
    ),
    Rule(
        name="usp_without_mtp",
        axes=("cp", "cp_comm_type"),
        holds=lambda s, c: np.asarray(~uses_hybrid(c) | (s.model.num_mtp_layers == 0)),
        reason=lambda s, row: (
            f"cp {row['cp']} by a2a+p2p with {s.model.num_mtp_layers} multi-token-prediction layers: usp has none"
        ),
        source=_TYPES + ": usp",
    ),
    hybrid_heads_divisible(_USP),
    hybrid_kv_heads_divisible(_USP),
    divisible_rule(
        name="sequence_divisible_by_cp",
        axes=("cp",),
        dividend=shared.SEQ_LEN,
        divisor=shared.CP,
        source=_TYPES + ": every strategy; " + _SHARDING,
    ),
    shared.a2a_heads_divisible_by_cp(_TYPES + ": ulysses"),
    # More than one KV head: num_kv_heads % cp with cp > 1 says so.
    shared.a2a_kv_heads_divisible_by_cp(_TYPES + ": ulysses"),
)
