"""Options of a plan that count layers and name more of them than there are: they mean the same as fewer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from costmodel.plan_rows import chunks_of_plan
from costmodel.spec.plan import Plan


def beyond_layers(plans: Iterable[Plan]) -> tuple[str, ...]:
    """A line for each such value in any of the plans; none where all count no further than their layers."""
    plans = tuple(plans)
    intervals = ((plan.recompute_interval, _together(plan)) for plan in plans)
    prefetched = ((plan.fsdp_prefetch, max(plan.layers_per_stage)) for plan in plans)
    return (
        *_lines("recompute_interval", intervals, "no chunk of a stage has more layers that run again"),
        *_lines("fsdp_prefetch", prefetched, "no stage has more layers"),
    )


def _together(plan: Plan) -> int:
    """The most layers that one checkpoint can hold: it ends with its chunk."""
    stages = zip(plan.recomputed_layers_per_stage, chunks_of_plan(plan), strict=True)
    return max(min(again, max(chunks)) for again, chunks in stages)


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
