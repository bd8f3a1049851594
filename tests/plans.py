"""Finished plans for tests, the illegal ones too, and what the independent judge says of them."""

from __future__ import annotations

from typing import Any

from costmodel.checker import check_plan
from costmodel.recompute_modules import modules_of
from costmodel.rules.rule import as_columns
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.options import OPTIONS, usual_options
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES, Plan
from costmodel.stages import Layout, layers_per_chunk
from costmodel.table import mesh_size


def finished(scenario: Scenario, row: dict[str, int], **changes: Any) -> Plan:
    """The row as a finished plan, unvalidated, so that the checker sees plans that no reader would let through."""
    schedule = SCHEDULES[row["schedule"]]
    shape = scenario.model.num_layers, row["pp"], row["vpp"], Layout(row["layout"])
    chunks = layers_per_chunk(*shape, placement_of(schedule))
    assert chunks is not None
    same = ("tp", "cp", "ep", "etp", "dp", "dp_replicate", "dp_shard", "pp", "vpp", "zero_stage", "micro_batch_size")
    fields = {axis: row[axis] for axis in (*same, "num_microbatches")} | {
        "cp_comm_type": CP_COMM_TYPES[row["cp_comm_type"]],
        "sequence_parallel": row["tp"] > 1,
        "global_batch_size": scenario.workload.global_batch_size,
        "seq_len": scenario.workload.seq_len,
        "devices_used": mesh_size(row),
        "schedule": schedule,
        "layers_per_stage": tuple(sum(device) for device in chunks),
        "layers_per_chunk": chunks if row["vpp"] > 1 else None,
        "recompute": RECOMPUTES[row["recompute"]],
        "recomputed_layers_per_stage": (0,) * row["pp"],
        "precision": scenario.workload.precision.name,
        "optimizer": scenario.workload.optimizer.name,
        "gradient_dtype": scenario.gradients,
        "framework": scenario.framework.name,
        "framework_version": scenario.framework.version,
    }
    usual = usual_options(as_columns(row))
    fields |= {option.name: option.decode(row.get(option.name, int(usual[option.name]))) for option in OPTIONS}
    if row.get("recompute_modules") and fields["recompute"] == "selective":
        fields["recompute_modules"] = modules_of(scenario, row["recompute_modules"])
    return Plan.model_construct(**(fields | changes))


def slugs(plan: Plan, scenario: Scenario) -> set[str]:
    """What the checker finds wrong with a finished plan."""
    return {violation.rule for violation in check_plan(plan, scenario)}
