"""A plan as one row of a plan table, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from costmodel.recompute_modules import modules_code, modules_of, selective_modules
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.model import DenseLayers
from costmodel.spec.options import OPTIONS
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES, Plan
from costmodel.stages import Layout, layers_per_chunk, recomputed_of_chunks, stages_of_chunks
from costmodel.table import StageTable, are_unlike, layer_counts, mesh_size, virtual_stages

Chunks: TypeAlias = tuple[tuple[int, ...], ...]
"""Layers of every chunk, ``chunks[device][chunk]``."""


def encode(scenario: Scenario, plan: Plan, layout: Layout) -> dict[str, int]:
    """A plan as one row; its layers must be those of ``layout``."""
    options = {option.name: option.encode(getattr(plan, option.name)) for option in OPTIONS}
    return options | {
        "tp": plan.tp,
        "cp": plan.cp,
        "cp_comm_type": CP_COMM_TYPES.index(plan.cp_comm_type),
        "ep": plan.ep,
        "etp": plan.etp,
        "dp": plan.dp,
        "dp_replicate": plan.dp_replicate,
        "dp_shard": plan.dp_shard,
        "pp": plan.pp,
        "vpp": plan.vpp,
        "layout": int(layout),
        "zero_stage": plan.zero_stage,
        "micro_batch_size": plan.micro_batch_size,
        "num_microbatches": plan.num_microbatches,
        "recompute": RECOMPUTES.index(plan.recompute),
        "recompute_modules": _modules_code(scenario, plan),
        "schedule": SCHEDULES.index(plan.schedule),
    }


def _modules_code(scenario: Scenario, plan: Plan) -> int:
    """0 for what the framework recomputes by itself; else a bit a module, and one more where none is named."""
    if plan.recompute != "selective" or set(plan.recompute_modules) == set(selective_modules(scenario)):
        return 0
    return modules_code(plan.recompute_modules)


def chunks_of_plan(plan: Plan) -> Chunks:
    """Layers of every chunk, also of a plan that has one chunk per device."""
    return plan.layers_per_chunk or tuple((layers,) for layers in plan.layers_per_stage)


def layout_of(plan: Plan, num_layers: int) -> Layout | None:
    """The layout whose layers a plan has; None for layers of its own."""
    chunks = chunks_of_plan(plan)
    if len(chunks) != plan.pp or any(len(device) != plan.vpp for device in chunks):
        return None
    shape, placement = (num_layers, plan.pp, plan.vpp), placement_of(plan.schedule)
    matching = (layout for layout in Layout if layers_per_chunk(*shape, layout, placement) == chunks)
    return next(matching, None)


def stages_of_plan(scenario: Scenario, plan: Plan) -> StageTable:
    """The stages of one plan, whatever layers it has: a table of one row."""
    return stages_of_plans(scenario, [plan])


def stages_of_plans(scenario: Scenario, plans: Sequence[Plan]) -> StageTable:
    """The stages of several plans, whatever layers they have."""
    _, dense_layers = layer_counts(scenario)
    several = any(recomputes_some(plan) for plan in plans)
    stages = StageTable.of(
        [
            stages_of_chunks(
                chunks_of_plan(plan),
                dense_layers,
                placement_of(plan.schedule),
                plan.recomputed_layers_per_stage if several else None,
            )
            for plan in plans
        ]
    )
    return stages.with_chunks(_chunks_of_plans(plans, dense_layers, several))


def _chunks_of_plans(plans: Sequence[Plan], dense_layers: DenseLayers, several: bool) -> StageTable | None:
    """The virtual stages of those whose interleaved chunks are unlike; None where there are none."""

    def unlike(plan: Plan) -> Chunks | None:
        own = plan.layers_per_chunk if plan.schedule == "interleaved_1f1b" else None
        return own if own and (several or are_unlike(own, dense_layers)) else None

    chunks = [unlike(plan) for plan in plans]
    if not any(chunks):
        return None
    again = [
        own and [recomputed_of_chunks(*of) for of in zip(own, plan.recomputed_layers_per_stage, strict=True)]
        for own, plan in zip(chunks, plans, strict=True)
    ]
    return virtual_stages(chunks, [dense_layers] * len(plans), again if several else None)


def recomputes_some(plan: Plan) -> bool:
    """Whether how many layers run again is the plan's own choice: neither all under ``full`` nor none otherwise."""
    usual = plan.layers_per_stage if plan.recompute == "full" else (0,) * len(plan.layers_per_stage)
    return plan.recomputed_layers_per_stage != usual


def plan_of(
    scenario: Scenario,
    row: Mapping[str, int],
    own_layers: Chunks | None = None,
    recomputed: tuple[int, ...] | None = None,
) -> Plan:
    """The plan that one table row stands for.

    Args:
        own_layers: layers of every chunk, in place of those of the row's layout.
        recomputed: layers of every device that run again, in place of all or none.
    """
    model, framework = scenario.model, scenario.framework
    schedule = SCHEDULES[row["schedule"]]
    chunks = own_layers or layers_per_chunk(
        model.num_layers, row["pp"], row["vpp"], Layout(row["layout"]), placement_of(schedule)
    )
    if chunks is None:
        raise ValueError(f"row has no layout: {row}")
    layers = tuple(sum(device) for device in chunks)
    recompute = RECOMPUTES[row["recompute"]]
    again = (layers if recompute == "full" else (0,) * len(layers)) if recomputed is None else recomputed
    return Plan(
        tp=row["tp"],
        pp=row["pp"],
        vpp=row["vpp"],
        cp=row["cp"],
        cp_comm_type=CP_COMM_TYPES[row["cp_comm_type"]],
        ep=row["ep"],
        etp=row["etp"],
        dp=row["dp"],
        dp_replicate=row["dp_replicate"],
        dp_shard=row["dp_shard"],
        zero_stage=row["zero_stage"],  # type: ignore[arg-type]  # a table holds 0..3, which pydantic checks
        sequence_parallel=row["tp"] > 1,
        micro_batch_size=row["micro_batch_size"],
        num_microbatches=row["num_microbatches"],
        global_batch_size=scenario.workload.global_batch_size,
        seq_len=scenario.workload.seq_len,
        devices_used=mesh_size(row),
        schedule=schedule,
        layers_per_stage=layers,
        layers_per_chunk=chunks if row["vpp"] > 1 else None,
        recompute=recompute,
        recompute_modules=modules_of(scenario, row["recompute_modules"]) if recompute == "selective" else (),
        recomputed_layers_per_stage=again,
        precision=scenario.workload.precision.name,
        optimizer=scenario.workload.optimizer.name,
        gradient_dtype=scenario.gradients,
        framework=framework.name,
        framework_version=framework.version,
        **{option.name: option.decode(row[option.name]) for option in OPTIONS},
    )
