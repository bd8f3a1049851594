"""Memory of every stage, stacked against what a device has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.charts.chart import Axis, Chart, Mark, Series
from api.dashboard.terms import OF_MEMORY, memory_by_kind, memory_name
from api.dashboard.words import GIB, gib

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Bytes by stage and term, as texts in GiB.

    Attributes:
        heads: names of terms that any stage has.
        rows: stage, its layers, its sum, and its terms.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def chart(memory: Json, layers: Sequence[int]) -> Chart:
    """A bar for every stage."""
    stages = memory["stages"]
    kinds = [memory_by_kind(stage) for stage in stages]
    places = tuple(float(place) for place in range(len(stages)))
    series = tuple(
        Series(
            name=kind.name,
            kind="bars",
            hue=kind.hue,
            x=places,
            y=tuple(of.get(kind, 0.0) / GIB for of in kinds),
            said=tuple(
                f"stage {place}, {_layers(layers, place)}: {gib(of.get(kind, 0.0))} GiB {kind.name} of "
                f"{gib(sum(of.values()))}"
                for place, of in enumerate(kinds)
            ),
        )
        for kind in OF_MEMORY
        if any(of.get(kind) for of in kinds)
    )
    marks = [Mark(value=memory["usable_bytes"] / GIB, name=f"usable {gib(memory['usable_bytes'])} GiB")]
    if device := memory.get("device_bytes"):
        marks.append(Mark(value=device / GIB, name=f"device {gib(device)} GiB"))
    fullest = max(range(len(stages)), key=lambda place: sum(stages[place].values()))
    many = len(stages) > 1
    return Chart(
        id="memory-chart",
        title="Allocated on a device of each stage" if many else "Allocated on a device",
        told=(
            f"Memory of {len(stages)} pipeline stages by what it is for; the fullest is stage {fullest} with "
            f"{gib(memory['peak_bytes'])} of {gib(memory['usable_bytes'])} GiB usable"
        ),
        x=Axis(title="pipeline stage", names=tuple(str(place) for place in range(len(stages)))),
        y=Axis(title="memory", unit="GiB", from_zero=True),
        series=series,
        marks=tuple(marks),
        height=300,
    )


def table(memory: Json, layers: Sequence[int]) -> Table:
    """The same with every term apart."""
    stages = memory["stages"]
    terms = [term for term in stages[0] if any(stage.get(term) for stage in stages)]
    rows = tuple(
        (
            str(place),
            str(layers[place]) if place < len(layers) else "",
            f"{sum(stage.values()) / GIB:.2f}",
            *(f"{stage.get(term, 0) / GIB:.2f}" for term in terms),
        )
        for place, stage in enumerate(stages)
    )
    return Table(heads=tuple(memory_name(term) for term in terms), rows=rows)


def notes(memory: Json) -> list[str]:
    """How sure the peak is, what the process holds, and what lies with the hosts; as far as it was stored."""
    found: list[str] = []
    if interval := memory.get("peak_interval_bytes"):
        low, high = (end / GIB for end in interval)
        found.append(
            f"{gib(memory['peak_bytes'])} GiB allocated on the fullest device, {low:.1f} to {high:.1f} expected."
        )
    if memory.get("reserved_bytes") and memory.get("device_bytes"):
        told = held(memory)
        found.append(f"{told[0].upper()}{told[1:]}.")
    if hosts := memory.get("host_bytes_per_node"):
        there = memory.get("host_memory_bytes_per_node")
        of = f" of {there / GIB:,.0f}" if there else ""
        found.append(f"Offloaded: {hosts / GIB:,.1f}{of} GiB in the memory of each node.")
    return found


def held(memory: Json) -> str:
    """What the process holds of the device; in plain words where that is more than there is."""
    size, there = memory["reserved_bytes"] / GIB, memory["device_bytes"] / GIB
    pool = "with its allocator's pool and what lies outside of that"
    if size <= there:
        return f"the process then holds about {size:.1f} of the device's {there:.1f} GiB, {pool}"
    return (
        f"at risk: the process would then hold about {size:.1f} GiB, {pool}, more than the device's {there:.1f} GiB; "
        "it runs only if the allocator gives back what it keeps for later"
    )


def _layers(layers: Sequence[int], place: int) -> str:
    count = layers[place] if place < len(layers) else 0
    return f"{count} layer{'' if count == 1 else 's'}"
