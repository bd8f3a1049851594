"""Rules on the pipeline that hold under every framework: layers of each device, and which schedule goes with them."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules.layouts import LAYOUT_AXES, Chunks, chunks_of, per_layout
from costmodel.rules.rule import CATALOG, OWN, PlanColumns, Row, Rule
from costmodel.scenario import Scenario
from costmodel.spec.plan import SCHEDULES
from costmodel.stages import Layout, shortened

_1F1B = SCHEDULES.index("1f1b")
_INTERLEAVED = SCHEDULES.index("interleaved_1f1b")
_TWO_CHUNKS = tuple(SCHEDULES.index(name) for name in ("zb_v", "dualpipe_v"))
_DUALPIPE = SCHEDULES.index("dualpipe")
_DUALPIPE_CODE = "deepseek-ai/DualPipe bb214e82b593 (2025-03) dualpipe/dualpipe.py, step"


def _within_layers(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray(columns["pp"] <= scenario.model.num_layers)


def _layout_feasible(scenario: Scenario, columns: PlanColumns) -> Bools:
    return per_layout(scenario, columns, _is_feasible)


def _is_feasible(chunks: Chunks | None) -> bool:
    return chunks is not None


def _layout_reason(scenario: Scenario, row: Row) -> str:
    layers, pp, vpp, layout = scenario.model.num_layers, row["pp"], row["vpp"], row["layout"]
    name = Layout(layout).name
    return f"num_layers {layers} on pp {pp} * vpp {vpp} = {pp * vpp} chunks: layout {name} leaves an end below 0 layers"


def _every_stage(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray(per_layout(scenario, columns, _every_stage_holds) & _within_layers(scenario, columns))


def _every_stage_holds(chunks: Chunks | None) -> bool:
    return chunks is None or min(sum(device) for device in chunks) >= 1


def _every_stage_reason(scenario: Scenario, row: Row) -> str:
    layers, pp = scenario.model.num_layers, row["pp"]
    chunks = chunks_of(scenario, row)
    split = f" split as {shortened(sum(device) for device in chunks)}" if chunks else ""
    return f"num_layers {layers} on pp {pp}{split} leaves a device with 0 decoder layers, must be at least 1"


def _schedule_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    offered = [SCHEDULES.index(schedule) for schedule in scenario.framework.schedules]
    # Without a pipeline there is nothing to schedule, so a framework that has no pipelines offers pp 1 all the same.
    return np.asarray((columns["pp"] == 1) | np.isin(columns["schedule"], offered))


def _schedule_known_reason(scenario: Scenario, row: Row) -> str:
    framework = scenario.framework
    offered = ", ".join(framework.schedules) or "no pipeline schedule"
    schedule = SCHEDULES[row["schedule"]]
    return f"schedule {schedule} with pp {row['pp']}: {framework.title} {framework.version} has {offered}"


def _chunks_within_layers(scenario: Scenario, columns: PlanColumns) -> Bools:
    chunks = columns["pp"] * columns["vpp"]
    return np.asarray((columns["vpp"] == 1) | (chunks <= scenario.model.num_layers + 2))


def _schedule_fits(_: Scenario, columns: PlanColumns) -> Bools:
    schedule, vpp = columns["schedule"], columns["vpp"]
    pipelined = np.where(schedule == _INTERLEAVED, vpp > 1, vpp == np.where(np.isin(schedule, _TWO_CHUNKS), 2, 1))
    return np.asarray(np.where(columns["pp"] == 1, (schedule == _1F1B) & (vpp == 1), pipelined))


def _schedule_fits_reason(_: Scenario, row: Row) -> str:
    schedule, pp, vpp = SCHEDULES[row["schedule"]], row["pp"], row["vpp"]
    in_a_v = "needs vpp 2, the two arms of its V"
    wanted = {"interleaved_1f1b": "needs vpp > 1", "zb_v": in_a_v, "dualpipe_v": in_a_v}.get(schedule, "needs vpp 1")
    return f"schedule {schedule} with pp {pp}, vpp {vpp}: " + ("pp 1 is 1f1b with vpp 1" if pp == 1 else wanted)


def _both_ways_filled(_: Scenario, columns: PlanColumns) -> Bools:
    pp, m = columns["pp"], columns["num_microbatches"]
    return np.asarray((columns["schedule"] != _DUALPIPE) | (pp == 1) | ((m % 2 == 0) & (m >= 2 * pp)))


PIPELINE_RULES: tuple[Rule, ...] = (
    Rule(
        name="pipeline_within_layers",
        axes=("pp",),
        holds=_within_layers,
        reason=lambda s, row: f"pp {row['pp']} must be at most num_layers {s.model.num_layers}",
        source=OWN + "a stage without layers costs a bubble and saves nothing",
        policy=True,
    ),
    Rule(
        name="layout_feasible",
        axes=LAYOUT_AXES,
        holds=_layout_feasible,
        reason=_layout_reason,
        source=OWN + "costmodel/stages.py, layers_per_chunk",
    ),
    Rule(
        name="every_stage_has_a_layer",
        axes=LAYOUT_AXES,
        holds=_every_stage,
        reason=_every_stage_reason,
        source=OWN + "a stage without layers costs a bubble and saves nothing",
        policy=True,
        refused_with_feature="empty_stages_refused",
    ),
    Rule(
        name="chunks_within_layers",
        axes=("pp", "vpp"),
        holds=_chunks_within_layers,
        reason=lambda s, row: (
            f"pp {row['pp']} * vpp {row['vpp']} = {row['pp'] * row['vpp']} chunks must be at most num_layers "
            f"{s.model.num_layers} + 2, one each for embedding and loss"
        ),
        source=OWN
        + "a chunk without layers costs transfers and saves nothing, unless it holds the embedding or the loss",
        policy=True,
    ),
    Rule(
        name="schedule_known",
        axes=("pp", "schedule"),
        holds=_schedule_known,
        reason=_schedule_known_reason,
        source=CATALOG,
    ),
    Rule(
        name="schedule_fits_chunks",
        axes=("pp", "vpp", "schedule"),
        holds=_schedule_fits,
        reason=_schedule_fits_reason,
        source=OWN + "meaning of the schedules",
    ),
    Rule(
        name="dualpipe_needs_even_pp",
        axes=("pp", "schedule"),
        holds=lambda _, c: np.asarray((c["schedule"] != _DUALPIPE) | (c["pp"] % 2 == 0) | (c["pp"] == 1)),
        reason=lambda _, row: (
            f"schedule dualpipe with pp {row['pp']}: devices mirror each other in pairs, pp % 2 must be 0"
        ),
        source=_DUALPIPE_CODE,
    ),
    Rule(
        name="dualpipe_fills_both_ways",
        axes=("pp", "schedule", "num_microbatches"),
        holds=_both_ways_filled,
        reason=lambda _, row: (
            f"schedule dualpipe with num_microbatches {row['num_microbatches']}: half of them go each way, the number "
            f"must be even and at least 2 * pp {row['pp']} = {2 * row['pp']}"
        ),
        source=_DUALPIPE_CODE,
    ),
)
