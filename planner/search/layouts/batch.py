"""Plans with what each of their devices may hold, side by side, so that all of it is priced at once.

Plans of different pipelines have different holdings: rows are as long as the longest, and what only fills them up
repeats a row's first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costmodel.arrays import Ints, Num, num, per_stage
from costmodel.predict import StageTimes
from costmodel.table import PlanTable, StageTable
from planner.search.layouts.splits import Splits


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Plans, and for each the place of its ``Splits``."""

    table: PlanTable
    groups: Sequence[Splits]
    of_row: Ints

    def take(self, rows: Ints) -> Batch:
        """The chosen rows."""
        return Batch(table=self.table.take(rows), groups=self.groups, of_row=self.of_row[rows])

    @property
    def width(self) -> int:
        """Holdings of the longest row."""
        return max(len(splits.device) for splits in self.groups)

    @cached_property
    def _columns(self) -> dict[str, Ints]:
        """``(groups, width)`` of what stages are made of."""
        width = self.width

        def padded(values: Ints) -> Ints:
            return np.concatenate([values, np.full(width - len(values), values[0])])

        columns: dict[str, list[Ints]] = {name: [] for name in ("device", "dense", "moe", "head", "most")}
        for splits in self.groups:
            columns["device"].append(padded(splits.device))
            columns["dense"].append(padded(splits.dense_layers))
            columns["moe"].append(padded(splits.moe_layers))
            columns["head"].append(padded((splits.device == splits.pipeline.last).astype(np.int64)))
            columns["most"].append(padded(splits.all_again))
        return {name: np.stack(rows) for name, rows in columns.items()}

    @cached_property
    def _again(self) -> tuple[Ints, Ints]:
        """``(groups, width, counts)`` (dense, MoE) layers that run again."""
        counts = max(splits.counts for splits in self.groups)
        found = []
        for name in ("dense_again", "moe_again"):
            whole = np.zeros((len(self.groups), self.width, counts), dtype=np.int64)
            for place, splits in enumerate(self.groups):
                own = getattr(splits, name)
                whole[place, :, : splits.counts] = own[:1]
                whole[place, : len(own), : splits.counts] = own
                whole[place, :, splits.counts :] = whole[place, :, splits.counts - 1 : splits.counts]
            found.append(whole)
        return found[0], found[1]

    @property
    def all_again(self) -> Ints:
        """``(rows, width)``; the number to run again of each chunk at which all layers of a holding do."""
        return self._columns["most"][self.of_row]

    @property
    def layers(self) -> tuple[Num, Num]:
        """(dense, MoE) layers of the model."""
        pipeline = self.groups[0].pipeline
        dense = pipeline.dense if isinstance(pipeline.dense, int) else len(pipeline.dense)
        return num(dense), num(pipeline.layers - dense)

    def layers_again(self, told: Ints) -> tuple[Ints, Ints]:
        """``(rows, width)`` (dense, MoE) layers that run again where each holding is told to run so many of a chunk."""
        row, place = self.of_row[:, np.newaxis], np.arange(self.width)
        return self._again[0][row, place, told], self._again[1][row, place, told]

    def stages(self, told: Ints) -> StageTable:
        """The holdings as stages."""
        columns = {name: num(values)[self.of_row] for name, values in self._columns.items()}
        dense, moe = self.layers_again(told)
        return StageTable(
            index=columns["device"],
            dense_layers=columns["dense"],
            moe_layers=columns["moe"],
            has_embedding=num(columns["device"] == 0.0),
            has_head=columns["head"],
            work_share=np.ones((1, 1)),
            recomputed_dense=num(dense),
            recomputed_moe=num(moe),
        )

    def again_s(self, times: StageTimes, told: Ints) -> Num:
        """Seconds of one micro-batch in what runs again of each holding, never less than nothing."""
        dense_s, moe_s = times.again_s(num(1.0), num(0.0)), times.again_s(num(0.0), num(1.0))
        dense, moe = self.layers_again(told)
        return dense * per_stage(np.maximum(dense_s, 0.0)) + moe * per_stage(np.maximum(moe_s, 0.0))
