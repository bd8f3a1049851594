"""Rules that hold under every framework: arithmetic of the mesh and the batch, and what is on offer."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules.context_parallel import CONTEXT_RULES
from costmodel.rules.experts import DISPATCH_RULES
from costmodel.rules.offload import OFFLOAD_RULES
from costmodel.rules.pipeline import PIPELINE_RULES
from costmodel.rules.recompute import RECOMPUTE_RULES
from costmodel.rules.rule import ARITHMETIC, CATALOG, HARDWARE, OWN, PlanColumns, Row, Rule, divisible_rule
from costmodel.rules.sharding import SHARDING_RULES
from costmodel.scenario import Scenario, lacking_format
from costmodel.spec.plan import CP_COMM_TYPES
from costmodel.table import mesh_size

MESH = ("tp", "cp", "dp", "pp")


def _enough_devices(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray(mesh_size(columns) <= scenario.devices)


def _enough_devices_reason(scenario: Scenario, row: Row) -> str:
    tp, cp, dp, pp = (row[axis] for axis in MESH)
    return f"tp {tp} * cp {cp} * dp {dp} * pp {pp} = {mesh_size(row)}, must be at most devices {scenario.devices}"


def _idle_is_whole_nodes(scenario: Scenario, columns: PlanColumns) -> Bools:
    # Inside one node any number may be used; plans that need too many devices break `enough_devices` instead.
    inside = scenario.devices <= scenario.cluster.devices_per_node
    idle = scenario.devices - mesh_size(columns)
    return np.asarray(inside | (idle < 0) | (idle % scenario.cluster.devices_per_node == 0))


def _idle_is_whole_nodes_reason(scenario: Scenario, row: Row) -> str:
    used, node = mesh_size(row), scenario.cluster.devices_per_node
    idle = scenario.devices - used
    return (
        f"devices {scenario.devices} - used {used} = {idle} idle; {idle} % devices_per_node {node} = {idle % node}, "
        "must be 0"
    )


def _microbatches(scenario: Scenario, columns: PlanColumns) -> Bools:
    share = columns["micro_batch_size"] * columns["dp"]
    return np.asarray(columns["num_microbatches"] == np.maximum(scenario.workload.global_batch_size // share, 1))


def _microbatches_reason(scenario: Scenario, row: Row) -> str:
    batch, size, dp = scenario.workload.global_batch_size, row["micro_batch_size"], row["dp"]
    return (
        f"num_microbatches {row['num_microbatches']} must be global_batch_size {batch} // (micro_batch_size {size} * "
        f"dp {dp}) = {batch // (size * dp)} and at least 1"
    )


def _experts_need_moe(scenario: Scenario, columns: PlanColumns) -> Bools:
    unused = (columns["ep"] == 1) & (columns["etp"] == 1)
    return np.asarray(unused | (scenario.model.moe is not None))


def _experts_need_moe_reason(scenario: Scenario, row: Row) -> str:
    return f"{scenario.model.name} has 0 experts: ep {row['ep']} and etp {row['etp']} must be 1"


def _num_experts(scenario: Scenario, _: PlanColumns) -> int:
    return scenario.model.moe.num_experts if scenario.model.moe else 0


def _zero_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray(np.isin(columns["zero_stage"], scenario.framework.zero_stages))


def _zero_known_reason(scenario: Scenario, row: Row) -> str:
    offered = ", ".join(map(str, scenario.framework.zero_stages))
    return f"zero_stage {row['zero_stage']}: {scenario.framework.title} has {offered}"


def _dp_product(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray(columns["dp_replicate"] * columns["dp_shard"] == columns["dp"])


def _dp_product_reason(_: Scenario, row: Row) -> str:
    replicate, shard = row["dp_replicate"], row["dp_shard"]
    return f"dp_replicate {replicate} * dp_shard {shard} = {replicate * shard}, must be dp {row['dp']}"


def _unsharded(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["zero_stage"] != 0) | (columns["dp_shard"] == 1))


def _cp_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    offered = [CP_COMM_TYPES.index(kind) for kind in scenario.framework.cp_comm_types]
    return np.asarray((columns["cp"] == 1) | np.isin(columns["cp_comm_type"], offered))


def _cp_known_reason(scenario: Scenario, row: Row) -> str:
    offered = ", ".join(scenario.framework.cp_comm_types) or "no context parallelism"
    kind = CP_COMM_TYPES[row["cp_comm_type"]]
    return f"cp_comm_type {kind} with cp {row['cp']}: {scenario.framework.title} has {offered}"


def _cp_canonical(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["cp"] > 1) | (columns["cp_comm_type"] == 0))


def _cp_canonical_reason(_: Scenario, row: Row) -> str:
    kind = CP_COMM_TYPES[row["cp_comm_type"]]
    return f"cp_comm_type {kind} means nothing with cp {row['cp']}: such a plan is listed once, as {CP_COMM_TYPES[0]}"


def _tensor_parallel_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["tp"] == 1) | scenario.framework.tensor_parallel)


def _expert_parallel_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["ep"] == 1) & (columns["etp"] == 1) | scenario.framework.expert_parallel)


def _precision_in_hardware(scenario: Scenario, columns: PlanColumns) -> Bools:
    lacking = lacking_format(scenario.workload.precision, scenario.cluster.accelerator)
    return np.full(np.shape(columns["tp"]), lacking is None)


def _precision_in_hardware_reason(scenario: Scenario, _: Row) -> str:
    lacking = lacking_format(scenario.workload.precision, scenario.cluster.accelerator)
    return f"precision {lacking}"


GENERAL_RULES: tuple[Rule, ...] = (
    Rule(
        name="precision_in_hardware",
        axes=("tp",),
        holds=_precision_in_hardware,
        reason=_precision_in_hardware_reason,
        source=HARDWARE,
    ),
    Rule(
        name="enough_devices",
        axes=MESH,
        holds=_enough_devices,
        reason=_enough_devices_reason,
        source=OWN + "size of the dense mesh",
    ),
    Rule(
        name="idle_devices_are_whole_nodes",
        axes=MESH,
        holds=_idle_is_whole_nodes,
        reason=_idle_is_whole_nodes_reason,
        source=OWN + "schedulers hand out whole nodes; inside one node any number may be used",
        policy=True,
    ),
    divisible_rule(
        name="batch_divisible",
        axes=("micro_batch_size", "dp"),
        dividend=("global_batch_size", lambda scenario, _: scenario.workload.global_batch_size),
        divisor=("(micro_batch_size * dp)", lambda _, columns: columns["micro_batch_size"] * columns["dp"]),
        source=ARITHMETIC,
    ),
    Rule(
        name="microbatches_fill_batch",
        axes=("micro_batch_size", "dp", "num_microbatches"),
        holds=_microbatches,
        reason=_microbatches_reason,
        source=ARITHMETIC,
    ),
    Rule(
        name="experts_need_moe",
        axes=("ep", "etp"),
        holds=_experts_need_moe,
        reason=_experts_need_moe_reason,
        source=ARITHMETIC,
    ),
    divisible_rule(
        name="experts_divisible_by_ep",
        axes=("ep",),
        dividend=("num_experts", _num_experts),
        divisor=("ep", lambda _, columns: columns["ep"]),
        source=ARITHMETIC,
    ),
    *DISPATCH_RULES,
    *PIPELINE_RULES,
    *CONTEXT_RULES,
    Rule(
        name="tensor_parallel_known",
        axes=("tp",),
        holds=_tensor_parallel_known,
        reason=lambda s, row: f"tp {row['tp']} must be 1: {s.framework.title} is planned without tensor parallelism",
        source=CATALOG,
    ),
    Rule(
        name="tp_overlap_known",
        axes=("tp", "tp_overlap"),
        holds=lambda _, c: np.asarray((c["tp"] == 1) | (c["tp_overlap"] == 1)),
        reason=lambda s, row: (
            f"tp_overlap false with tp {row['tp']}: {s.framework.title} has no switch for it, and is priced as it was "
            "measured"
        ),
        without_feature="tp_overlap",
        source=CATALOG,
    ),
    Rule(
        name="expert_parallel_known",
        axes=("ep", "etp"),
        holds=_expert_parallel_known,
        reason=lambda s, row: (
            f"ep {row['ep']} and etp {row['etp']} must be 1: {s.framework.title} is planned without expert parallelism"
        ),
        source=CATALOG,
    ),
    Rule(
        name="zero_stage_known",
        axes=("zero_stage",),
        holds=_zero_known,
        reason=_zero_known_reason,
        source=CATALOG,
    ),
    Rule(
        name="dp_is_replicate_times_shard",
        axes=("dp", "dp_replicate", "dp_shard"),
        holds=_dp_product,
        reason=_dp_product_reason,
        source=OWN + "meaning of the axes",
    ),
    Rule(
        name="unsharded_has_one_shard",
        axes=("zero_stage", "dp_shard"),
        holds=_unsharded,
        reason=lambda _, row: f"zero_stage {row['zero_stage']} shards nothing: dp_shard {row['dp_shard']} must be 1",
        source=OWN + "meaning of the axes",
    ),
    *SHARDING_RULES,
    Rule(
        name="cp_comm_type_known",
        axes=("cp", "cp_comm_type"),
        holds=_cp_known,
        reason=_cp_known_reason,
        source=CATALOG,
    ),
    Rule(
        name="cp_comm_type_canonical",
        axes=("cp", "cp_comm_type"),
        holds=_cp_canonical,
        reason=_cp_canonical_reason,
        source=OWN + "a plan is listed once",
        policy=True,
    ),
    *RECOMPUTE_RULES,
    *OFFLOAD_RULES,
)
