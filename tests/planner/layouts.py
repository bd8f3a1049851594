"""Small models, and every way to lay out a plan of them: what the search of layouts is held against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from costmodel.arrays import Num
from costmodel.catalog.model_catalog import load_model
from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.model import DenseLayers, ModelSpec
from costmodel.spec.plan import SCHEDULES
from costmodel.stages import recomputed_of_chunks, stages_of_chunks
from costmodel.table import PlanTable, StageTable, stage_table, virtual_stages
from planner.search.layouts.arrange import Arrangement
from planner.search.layouts.columns import ways_of

Chunks = tuple[tuple[int, ...], ...]


def model_of(kind: str, layers: int) -> ModelSpec:
    """A small model with so many layers: dense, experts, or the first layers dense."""
    if kind == "dense":
        return load_model("llama-3.2-1b").model_copy(update={"num_layers": layers})
    if kind == "alternating":
        return load_model("llama-4-maverick-17b-128e").model_copy(update={"num_layers": layers})
    model = load_model("deepseek-v3" if kind == "predicting" else "deepseek-v2-lite")
    assert model.moe is not None
    leading = {"experts": 0, "first-dense": 1, "three-dense": 3, "predicting": 2}[kind]
    moe = model.moe.model_copy(update={"num_dense_layers": leading})
    return model.model_copy(update={"num_layers": layers, "moe": moe})


def every_split(layers: int, pp: int, vpp: int, in_a_v: bool = False) -> Iterator[Chunks]:
    """Every number of layers of each device, its chunks as even as can be, lighter at the ends of the model."""
    last = 0 if in_a_v else pp - 1
    for totals in product(range(1, layers + 1), repeat=pp):
        if sum(totals) != layers:
            continue
        chunks = [even(total, vpp, turned=device == 0 and not in_a_v) for device, total in enumerate(totals)]
        empty = {(d, c) for d, own in enumerate(chunks) for c, count in enumerate(own) if count == 0}
        if empty <= {(0, 0), (last, vpp - 1)}:
            yield tuple(chunks)


def even(total: int, chunks: int, *, turned: bool) -> tuple[int, ...]:
    counts = tuple(total // chunks + (chunk < total % chunks) for chunk in range(chunks))
    return counts[::-1] if turned else counts


def every_number(chunks: Chunks) -> Iterator[tuple[int, ...]]:
    """Every number of layers of each device that run again: the first so many of each of its chunks."""
    each = [sorted({sum(min(told, own) for own in of) for told in range(max(of) + 1)}) for of in chunks]
    yield from product(*each)


def dense_way(chunks: Chunks, dense_layers: DenseLayers) -> tuple[int, ...]:
    """What orders the ways in which leading dense layers lie on devices: all on the first come first."""
    if not isinstance(dense_layers, int) or dense_layers in (0, sum(map(sum, chunks))) or len(chunks[0]) == 1:
        return ()
    left, found = dense_layers, list[int]()
    for own in chunks:
        found.append(min(left, own[0]))
        left -= found[-1]
    while found[-1] == 0:
        found.pop()
    return (int(found[0] == 0), *found[found[0] == 0 : -1])


@dataclass(frozen=True, kw_only=True, eq=False)
class Layouts:
    """All layouts of one plan with their prices as if no chunk waited for another."""

    scenario: Scenario
    facts: Facts
    row: dict[str, int]
    dense_layers: DenseLayers
    chunks: list[Chunks]
    recomputed: list[tuple[int, ...]]
    step_time_s: Num
    peak_bytes: Num

    @classmethod
    def of(cls, scenario: Scenario, row: dict[str, int], *, partly: bool) -> Layouts:
        """Price every layout of a plan; ``partly``: with every number of layers that run again."""
        schedule = SCHEDULES[row["schedule"]]
        placement = placement_of(schedule)
        splits = every_split(scenario.model.num_layers, row["pp"], row["vpp"], in_a_v=placement == 1)
        found: list[tuple[Chunks, tuple[int, ...]]] = []
        for chunks in splits:
            layers = tuple(map(sum, chunks))
            policy = layers if row["recompute"] == 2 else (0,) * row["pp"]
            found += [(chunks, again) for again in (every_number(chunks) if partly else [policy])]
        dense = scenario.model.dense_layers
        stages = StageTable.of([stages_of_chunks(chunks, dense, placement, again) for chunks, again in found])
        table = PlanTable.of_rows([row]).take(np.zeros(len(found), dtype=np.int64))
        facts = Facts.of(scenario)
        priced = predict(facts, table, stages)
        return cls(
            scenario=scenario,
            facts=facts,
            row=row,
            dense_layers=dense,
            chunks=[chunks for chunks, _ in found],
            recomputed=[again for _, again in found],
            step_time_s=priced.step_time_s,
            peak_bytes=priced.peak_bytes,
        )

    def chosen(self, usable: float) -> int | None:
        """The place of the layout that a search takes: by time, where leading dense layers lie, recompute, headroom.

        Of several chunks whose layers nothing else tells apart, the one closest to even with lighter ends.
        """
        fits = np.flatnonzero(self.peak_bytes <= usable)
        if not len(fits):
            return None
        quickest = self.step_time_s[fits].min()

        def order(place: int) -> tuple[Any, ...]:
            totals, last = list(map(sum, self.chunks[place])), len(self.chunks[place]) - 1
            turn = [last + 1 if device == last else last if device == 0 else device - 1 for device in range(last + 1)]
            return (
                dense_way(self.chunks[place], self.dense_layers),
                sum(self.recomputed[place]),
                round(float(np.log(self.peak_bytes[place])), 9),
                sum(total**2 for total in totals),
                sum(total * later for total, later in zip(totals, turn, strict=True)),
            )

        return min((at for at in fits.tolist() if self.step_time_s[at] <= quickest * (1.0 + 1e-9)), key=order)

    def interleaved(self, place: int) -> float:
        """Step time of a layout with its chunks in whichever of the ways that are tried waits least."""
        layout = Arrangement(chunks=self.chunks[place], recomputed=self.recomputed[place])
        ways, dense = ways_of(layout, self.dense_layers), self.dense_layers
        assert ways[0] == layout.chunks
        again = [[recomputed_of_chunks(*of) for of in zip(way, layout.recomputed, strict=True)] for way in ways]
        stages = StageTable.of([stages_of_chunks(way, dense, recomputed=layout.recomputed) for way in ways])
        stages = stages.with_chunks(virtual_stages(ways, [dense] * len(ways), again))
        table = PlanTable.of_rows([self.row]).take(np.zeros(len(ways), dtype=np.int64))
        return float(predict(self.facts, table, stages).step_time_s.min())

    def least(self, usable: float, recipes: Sequence[Mapping[str, int]]) -> float | None:
        """Step time of an interleaved plan's best layout that fits: its own, or a recipe's; None where none does.

        Args:
            recipes: rows that differ from the plan in their layout alone, and are legal.
        """
        place, found = self.chosen(usable), list[float]()
        if place is not None:
            found.append(self.interleaved(place))
        if recipes:
            table = PlanTable.of_rows(recipes)
            priced = predict(self.facts, table, stage_table(self.scenario, table))
            found += priced.step_time_s[priced.device_bytes(self.facts) <= usable].tolist()
        return min(found, default=None)

    def best(self, usable: float) -> tuple[float, int, float] | None:
        """(step time, layers that run again, peak) of the best that fits: by time, then recompute, then headroom."""
        fits = self.peak_bytes <= usable
        if not fits.any():
            return None
        quickest = float(self.step_time_s[fits].min())
        equal = fits & (self.step_time_s <= quickest * (1.0 + 1e-9))
        again = np.array([sum(own) for own in self.recomputed])
        fewest = int(again[equal].min())
        return quickest, fewest, float(self.peak_bytes[equal & (again == fewest)].min())
