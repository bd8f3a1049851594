"""Megatron's rules on the pipeline: which layer counts its flags can say, and how micro-batches fill the schedule."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules.layouts import LAYOUT_AXES, Chunks, chunks_of, per_layout, visited
from costmodel.rules.rule import PlanColumns, Row, Rule, divisible_rule
from costmodel.scenario import Scenario
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.plan import SCHEDULES
from costmodel.stages import shortened

_REPOSITORY = "NVIDIA/Megatron-LM d98e8a64ddf3 (2026-08-22) "

_INTERLEAVED = SCHEDULES.index("interleaved_1f1b")


def _layers_expressible(scenario: Scenario, columns: PlanColumns) -> Bools:
    framework = scenario.framework
    if framework.has("pipeline_layout") and not scenario.model.num_mtp_layers:
        return np.full(np.shape(columns["pp"]), True)
    features = ("account_for_ends", "uneven_ends", "uneven_ends_interleaved")
    return per_layout(scenario, columns, _expressible, tuple(framework.has(feature) for feature in features))


def _uneven_ends(framework: FrameworkSpec, *, interleaved: bool) -> bool:
    return framework.has("uneven_ends_interleaved" if interleaved else "uneven_ends")


def _expressible(
    chunks: Chunks | None, account_for_ends: bool, uneven_ends: bool, uneven_ends_interleaved: bool
) -> bool:
    """Whether Megatron without a layout string has flags for this split: equal chunks, or one of two kinds of ends."""
    if chunks is None:
        return True
    counts = visited(chunks)
    for embedding, loss in ((0, 0), (1, 0), (0, 1), (1, 1)) if account_for_ends else ((0, 0),):
        slots = [*counts]
        slots[0] += embedding
        slots[-1] += loss
        if len(set(slots)) == 1:
            return True
    middle = set(chunks[1:-1])
    stages_are_equal_inside = all(len(set(device)) == 1 and device[0] > 0 for device in chunks)
    uneven = uneven_ends_interleaved if len(chunks[0]) > 1 else uneven_ends
    return uneven and stages_are_equal_inside and len(middle) <= 1


def _layers_expressible_reason(scenario: Scenario, row: Row) -> str:
    framework, chunks = scenario.framework, chunks_of(scenario, row)
    split = shortened(visited(chunks)) if chunks else "nothing"
    means = ["equal chunks"]
    means += ["embedding and loss counted as layers"] * framework.has("account_for_ends")
    means += ["a first and last stage of their own size"] * _uneven_ends(framework, interleaved=row["vpp"] > 1)
    return (
        f"num_layers {scenario.model.num_layers} on pp {row['pp']} * vpp {row['vpp']} as {split}: "
        f"{framework.title} {framework.version} only has {', '.join(means)}"
    )


MEGATRON_PIPELINE_RULES: tuple[Rule, ...] = (
    Rule(
        name="layers_expressible",
        axes=LAYOUT_AXES,
        holds=_layers_expressible,
        reason=_layers_expressible_reason,
        without_feature="pipeline_layout_mtp",
        source=_REPOSITORY
        + "megatron/training/arguments.py:955-998, megatron/core/transformer/transformer_config.py:2295-2400; "
        "megatron-core 0.9.0 (PyPI) megatron/core/transformer/transformer_block.py:56-82; 0.13.0 "
        "transformer/pipeline_parallel_layer_layout.py:111",
    ),
    divisible_rule(
        name="microbatches_divisible_by_pp",
        axes=("pp", "schedule", "num_microbatches"),
        # pp <= N <= M, and M % N == 0 or M % N >= pp: with the default group N = pp the second can't be.
        dividend=("num_microbatches", lambda _, columns: columns["num_microbatches"]),
        divisor=("pp", lambda _, columns: columns["pp"]),
        when=lambda _, columns: columns["schedule"] == _INTERLEAVED,
        source=_REPOSITORY + "megatron/core/pipeline_parallel/schedules.py:1160,1172",
    ),
)
