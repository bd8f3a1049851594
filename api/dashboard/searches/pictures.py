"""The plans of an answer as pictures: time against memory, and the axes of the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from api.dashboard.charts.chart import Axis, Chart, Line, Mark, ParallelCoordinates, Series
from api.dashboard.words import GIB, gib, seconds
from planner.wording import mesh_in_words

Json = dict[str, Any]

_MOST_LINES = 100
_MOST_POINTS = 300
_FRONT_HUE, _OTHER_HUE, _BEST_HUE = 0, 7, 1
_AXES = (
    ("tp", "tp"),
    ("cp", "cp"),
    ("pp", "pp"),
    ("vpp", "vpp"),
    ("dp", "dp"),
    ("ep", "ep"),
    ("etp", "etp"),
    ("micro_batch_size", "mbs"),
    ("zero_stage", "ZeRO"),
)


def front_of(answer: Json) -> Chart | None:
    """Step time against memory, with the plans that no other beats marked; None with fewer than two plans.

    Where the question had ``pareto`` these are the answer's own, found among all plans, and compared in devices too.
    """
    plans: list[Json] = answer["plans"]
    own: list[Json] = answer.get("pareto") or []
    front = own or _unbeaten(plans)
    on_it = {entry["id"] for entry in front}
    beside = [entry for entry in plans if entry["id"] not in on_it]
    others = beside[:_MOST_POINTS]
    if len(front) + len(others) < 2:
        return None
    usable = plans[0]["prediction"]["memory"]["usable_bytes"] / GIB
    name = (
        "none better in time, devices and free memory at once" if own else "none listed is faster in as little memory"
    )
    ranks = {entry["id"]: entry["rank"] for entry in plans}
    series = [_points(name, front, ranks, _FRONT_HUE, strong=True)]
    if others:
        rest = "other plans of the answer" if others == beside else f"the best {_MOST_POINTS} others"
        series.insert(0, _points(rest, others, ranks, _OTHER_HUE, strong=False))
    return Chart(
        id="front",
        title="Step time against memory",
        told=f"{len(front) + len(others)} plans by step time and memory of the fullest device. Marked: {name}.",
        x=Axis(title="Step time", unit="s"),
        y=Axis(title="Memory of the fullest device", unit="GiB"),
        series=tuple(series),
        marks=(Mark(value=usable, name=f"usable: {usable:.1f} GiB"),),
    )


def axes_of(plans: Sequence[Json]) -> ParallelCoordinates | None:
    """The axes in which the best plans differ; None where there are no two such axes."""
    shown = plans[:_MOST_LINES]
    if len(shown) < 2:
        return None
    found: list[tuple[Axis, Callable[[Json], float | None]]] = []
    for key, title in _AXES:
        counts = sorted({entry["plan"][key] for entry in shown})
        if len(counts) > 1:
            found.append((_of_counts(title, counts), partial(_axis, key)))
    policies = tuple(sorted({str(entry["plan"]["recompute"]) for entry in shown}))
    if len(policies) > 1:
        found.append(
            (Axis(title="recompute", names=policies), lambda entry: policies.index(entry["plan"]["recompute"]))
        )
    if not found:
        return None
    found.append(
        (Axis(title="memory", unit="GiB"), lambda entry: entry["prediction"]["memory"]["peak_bytes"] / GIB),
    )
    found.append((Axis(title="step", unit="s"), lambda entry: entry["prediction"]["step_time_s"]))
    which = f"the best {len(shown)}" if len(shown) < len(plans) else f"all {len(shown)}"
    return ParallelCoordinates(
        id="axes",
        title=f"Axes of {which} plans, the best one on top",
        told=f"One line for each of {which} plans, through the axes in which they differ, memory and step time.",
        axes=tuple(axis for axis, _ in found),
        lines=tuple(
            Line(
                values=tuple(value(entry) for _, value in found),
                said=_said(entry, entry["rank"]),
                link=f"/plans/{entry['id']}",
                hue=_BEST_HUE if entry["rank"] == 1 else _FRONT_HUE,
                strong=entry["rank"] == 1,
            )
            for entry in shown
        ),
    )


def _axis(key: str, entry: Json) -> float:
    return float(entry["plan"][key])


def _of_counts(title: str, counts: list[int]) -> Axis:
    """Powers of two at equal distances, where there is no zero among them."""
    return Axis(title=title, log=counts[0] > 0, ticks=tuple(counts))


def _points(name: str, entries: Sequence[Json], ranks: dict[str, int], hue: int, *, strong: bool) -> Series:
    return Series(
        name=name,
        x=tuple(entry["prediction"]["step_time_s"] for entry in entries),
        y=tuple(entry["prediction"]["memory"]["peak_bytes"] / GIB for entry in entries),
        said=tuple(_said(entry, ranks.get(entry["id"])) for entry in entries),
        links=tuple(f"/plans/{entry['id']}" if entry["id"] in ranks else "" for entry in entries),
        hue=hue,
        strong=frozenset(range(len(entries))) if strong else frozenset(),
    )


def _said(entry: Json, rank: int | None) -> str:
    plan, prediction = entry["plan"], entry["prediction"]
    place = "on the front" if rank is None else f"#{rank}"
    memory = f"{gib(prediction['memory']['peak_bytes'])} GiB"
    return f"{place}: {mesh_in_words(plan)}; {seconds(prediction['step_time_s'])} s, {memory}"


def _unbeaten(plans: Sequence[Json]) -> list[Json]:
    """Those that no other is faster than without needing more memory."""
    found: list[Json] = []
    least = float("inf")
    for entry in sorted(plans, key=_time_and_memory):
        if entry["prediction"]["memory"]["peak_bytes"] < least:
            least = entry["prediction"]["memory"]["peak_bytes"]
            found.append(entry)
    return found


def _time_and_memory(entry: Json) -> tuple[float, int]:
    return entry["prediction"]["step_time_s"], entry["prediction"]["memory"]["peak_bytes"]
