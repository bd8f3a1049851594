"""Step time and memory of the compared plans, stacked on common scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.dashboard.charts.chart import HALF, Axis, Chart, Mark, Series
from api.dashboard.compare.sides import Scale
from api.dashboard.plans.waterfall import decimals
from api.dashboard.terms import OF_MEMORY, OF_TIME, Kind, memory_by_kind, time_by_kind
from api.dashboard.words import GIB, gib

Json = dict[str, Any]


def time_chart(predictions: Sequence[Json], scale: Scale) -> Chart:
    """A bar for every plan."""
    kinds = [time_by_kind(of["time"]) for of in predictions]
    totals = [of["step_time_s"] for of in predictions]
    digits = decimals(max(totals))
    step = scale.unit == "s"
    told = ", ".join(f"plan {place} {total:.{digits}f}" for place, total in enumerate(totals, start=1))
    return Chart(
        id="time-chart",
        title="Step time" if step else "Device time of a million tokens",
        told=f"{scale.meaning} of {len(totals)} plans by what it goes into: {told} {scale.unit}",
        x=_plans(len(totals)),
        y=Axis(title="step time" if step else "per million tokens", unit=scale.unit, from_zero=True),
        series=_stacked(OF_TIME, kinds, digits, scale.unit),
        width=HALF,
        height=280,
    )


def memory_chart(predictions: Sequence[Json]) -> Chart:
    """A bar for the fullest stage of every plan."""
    memories = [of["memory"] for of in predictions]
    stages = [max(memory["stages"], key=lambda stage: sum(stage.values())) for memory in memories]
    kinds = [{kind: size / GIB for kind, size in memory_by_kind(stage).items()} for stage in stages]
    totals = [sum(of.values()) for of in kinds]
    told = ", ".join(f"plan {place} {total:.1f}" for place, total in enumerate(totals, start=1))
    return Chart(
        id="memory-chart",
        title="Memory of the fullest stage",
        told=f"memory of {len(totals)} plans on their fullest stage by what it is for: {told} GiB",
        x=_plans(len(totals)),
        y=Axis(title="memory", unit="GiB", from_zero=True),
        series=_stacked(OF_MEMORY, kinds, 1, "GiB"),
        marks=tuple(_marks(memories)),
        width=HALF,
        height=280,
    )


def _plans(count: int) -> Axis:
    return Axis(title="", names=tuple(f"plan {place}" for place in range(1, count + 1)))


def _stacked(
    order: Sequence[Kind], kinds: Sequence[Mapping[Kind, float]], digits: int, unit: str
) -> tuple[Series, ...]:
    places = tuple(float(place) for place in range(len(kinds)))
    return tuple(
        Series(
            name=kind.name,
            kind="bars",
            hue=kind.hue,
            x=places,
            y=tuple(max(of.get(kind, 0.0), 0.0) for of in kinds),
            said=tuple(
                f"plan {place}: {of.get(kind, 0.0):.{digits}f} {unit} {kind.name}"
                for place, of in enumerate(kinds, start=1)
            ),
        )
        for kind in order
        if any(of.get(kind) for of in kinds)
    )


def _marks(memories: Sequence[Json]) -> list[Mark]:
    """What is usable; with the plans that have it, where they don't all have the same."""
    by_size: dict[int, list[int]] = {}
    for place, memory in enumerate(memories, start=1):
        by_size.setdefault(memory["usable_bytes"], []).append(place)
    found: list[Mark] = []
    for size, places in by_size.items():
        of = f" of plan{'s' if len(places) > 1 else ''} {', '.join(map(str, places))}" if len(by_size) > 1 else ""
        found.append(Mark(value=size / GIB, name=f"usable{of}: {gib(size)} GiB"))
    return found
