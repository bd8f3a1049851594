"""Terms of time and memory side by side, with bars on one scale, and the axes in which plans differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.compare.sides import signed
from api.dashboard.plans.waterfall import decimals
from api.dashboard.terms import Kind, memory_kind, memory_name, time_kind, time_name
from api.dashboard.words import GIB, gib
from costmodel.stages import shortened

Json = dict[str, Any]

_WORDS = {"micro_batch_size": "micro-batch", "num_microbatches": "micro-batches", "zero_stage": "ZeRO stage"}
_AGAIN = "recomputed_layers_per_stage"
_LONG = ("layers_per_stage", _AGAIN)
_LAST = (*_LONG, "layers_per_chunk")
# What the scenario says: told apart from what the plans choose, which may be a batch where it had a tolerance.
_GIVEN = frozenset({"seq_len", "precision", "optimizer", "framework", "framework_version"})
_MOST_LETTERS = 80
_LEAST_SHARE = 5e-4  # of the largest: below, a term is nowhere to be seen


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A plan's value of a term.

    Attributes:
        width: of its bar, in per cent of the table's largest value.
        apart: what it is more than the first plan's; empty for the first. ``worse`` says where it is.
    """

    value: str
    width: float = 0.0
    apart: str = ""
    worse: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A term."""

    name: str
    kind: Kind | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A field of the plans.

    Attributes:
        values: each with whether it is another than the first plan's.
    """

    name: str
    values: tuple[tuple[str, bool], ...]


def time_rows(times: Sequence[Mapping[str, float]]) -> list[Row]:
    """Parts of the step, the largest difference first, and their sum."""
    digits = decimals(max(sum(time.values()) for time in times))
    total = Row(name="in all", kind=None, cells=_cells([sum(time.values()) for time in times], digits, 0.0))
    return [*_rows(times, digits, lambda term: (time_name(term), time_kind(term))), total]


def memory_rows(predictions: Sequence[Json]) -> list[Row]:
    """Parts of the memory of each plan's fullest stage in GiB, the largest difference first, and their sum."""
    stages = [
        {term: size / GIB for term, size in max(of["memory"]["stages"], key=lambda stage: sum(stage.values())).items()}
        for of in predictions
    ]
    total = Row(name="allocated", kind=None, cells=_cells([sum(stage.values()) for stage in stages], 1, 0.0))
    usable = Row(
        name="usable",
        kind=None,
        cells=tuple(Cell(value=gib(of["memory"]["usable_bytes"])) for of in predictions),
    )
    return [*_rows(stages, 2, lambda term: (memory_name(term), memory_kind(term))), total, usable]


def _rows(parts: Sequence[Mapping[str, float]], digits: int, told: Any) -> list[Row]:
    largest = max((value for part in parts for value in part.values()), default=0.0) or 1.0
    terms = dict.fromkeys(term for part in parts for term in part)
    values = {term: [part.get(term, 0.0) for part in parts] for term in terms}
    shown = [term for term in terms if max(map(abs, values[term])) >= _LEAST_SHARE * largest]
    shown.sort(key=lambda term: min(values[term]) - max(values[term]))
    found: list[Row] = []
    for term in shown:
        name, kind = told(term)
        found.append(Row(name=name, kind=kind, cells=_cells(values[term], digits, largest)))
    return found


def _cells(values: Sequence[float], digits: int, largest: float) -> tuple[Cell, ...]:
    """``largest`` is the value of the longest bar; 0 for none."""
    found: list[Cell] = []
    for place, value in enumerate(values):
        apart = signed(value - values[0], digits) if place else ""
        nothing = apart == f"{0:.{digits}f}"
        worse = "" if nothing or not place else "more" if value > values[0] else "less"
        width = round(100 * max(value, 0.0) / largest, 2) if largest else 0.0
        found.append(Cell(value=f"{value:,.{digits}f}", width=width, apart="=" if nothing else apart, worse=worse))
    return tuple(found)


def choices(plans: Sequence[Json]) -> tuple[list[Choice], list[Choice]]:
    """Fields that differ, and those that don't; lists of layers last."""
    fields = dict.fromkeys(field for plan in plans for field in plan if field not in _LAST)
    different: list[Choice] = []
    same: list[Choice] = []
    for field in (*fields, *_LAST):
        values = [plan.get(field) for plan in plans]
        if all(value is None for value in values):
            continue
        texts = [_again(plan) if field == _AGAIN else _told(field, plan.get(field)) for plan in plans]
        if field == _AGAIN:
            values = list(texts)
        told = tuple((text, value != values[0]) for text, value in zip(texts, values, strict=True))
        choice = Choice(name=_WORDS.get(field, field), values=told)
        if not any(differs for _, differs in told):
            same.append(choice)
        elif field not in _GIVEN:
            different.append(choice)
    return different, same


def _again(plan: Json) -> str:
    """Layers that run again: of full recompute their number by stage, of selective recompute modules of every layer."""
    if plan["recompute"] == "full":
        return shortened(plan[_AGAIN])
    return "modules of every layer" if plan["recompute"] == "selective" else "none"


def _told(field: str, value: Any) -> str:
    if value is None:
        return "none"
    if field in _LONG and value:
        return shortened(value)
    if field == "layers_per_chunk":
        text = "; ".join(",".join(map(str, stage)) for stage in value)
        return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS].rpartition(';')[0]}; …"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
