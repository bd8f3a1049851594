"""Options of a plan that count layers and name more of them than there are: they mean the same as fewer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from costmodel.plan_rows import chunks_of_plan
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.plan import RECOMPUTES, SCHEDULES, Plan
from costmodel.stages import Layout, layers_per_chunk


def beyond_layers(plans: Iterable[Plan]) -> tuple[str, ...]:
    """A line for each such value in any of the plans; none where all count no further than their layers."""
    plans = tuple(plans)
    return (
        *_intervals((plan.recompute_interval, _together(plan)) for plan in plans),
        *_prefetched((plan.fsdp_prefetch, max(plan.layers_per_stage)) for plan in plans),
    )


def row_beyond_layers(scenario: Scenario, row: Mapping[str, int]) -> tuple[str, ...]:
    """The same of a row over the axes of a plan table, also where no legal plan is like it, as of some runs.

    Options that the row doesn't name are usual, and count no further than layers.
    """
    placement = placement_of(SCHEDULES[row["schedule"]])
    layers = scenario.model.num_layers
    chunks = layers_per_chunk(layers, row["pp"], row["vpp"], Layout(row["layout"]), placement) or ()
    together = max(map(max, chunks), default=0) if RECOMPUTES[row["recompute"]] == "full" else 0
    return (
        *_intervals((count, together) for count in _stated(row, "recompute_interval")),
        *_prefetched((count, max(map(sum, chunks), default=0)) for count in _stated(row, "fsdp_prefetch")),
    )


def _stated(row: Mapping[str, int], name: str) -> tuple[int, ...]:
    return (row[name],) if name in row else ()


def _together(plan: Plan) -> int:
    """The most layers that one checkpoint can hold: it ends with its chunk."""
    stages = zip(plan.recomputed_layers_per_stage, chunks_of_plan(plan), strict=True)
    return max(min(again, max(chunks)) for again, chunks in stages)


def _intervals(found: Iterable[tuple[int, int]]) -> Iterator[str]:
    return _lines("recompute_interval", found, "no chunk of a stage has more layers that run again")


def _prefetched(found: Iterable[tuple[int, int]]) -> Iterator[str]:
    return _lines("fsdp_prefetch", found, "no stage has more layers")


def _lines(name: str, found: Iterable[tuple[int, int]], why: str) -> Iterator[str]:
    """Of (value, layers) pairs."""
    beyond: dict[int, set[int]] = {}
    for value, layers in found:
        # One layer is the least that an option means, also where a stage has none.
        if value > max(layers, 1):
            beyond.setdefault(value, set()).add(max(layers, 1))
    for value, layers_of_plans in sorted(beyond.items()):
        least, most = min(layers_of_plans), max(layers_of_plans)
        span = str(most) if least == most else f"{least} to {most}, by plan"
        yield f"{name} {value} means the same as {span}: {why}"
