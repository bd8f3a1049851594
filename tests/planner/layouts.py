"""Small models, and every way to lay out a plan of them: what the search of layouts is held against."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from costmodel.arrays import Num
from costmodel.catalog.model_catalog import load_model
from costmodel.facts import Facts
from costmodel.predict import predict
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import SCHEDULES
from costmodel.stages import stages_of_chunks
from costmodel.table import PlanTable, StageTable

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Layouts:
    """All layouts of one plan with their prices."""

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
        priced = predict(Facts.of(scenario), table, stages)
        return cls(
            chunks=[chunks for chunks, _ in found],
            recomputed=[again for _, again in found],
            step_time_s=priced.step_time_s,
            peak_bytes=priced.peak_bytes,
        )

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
