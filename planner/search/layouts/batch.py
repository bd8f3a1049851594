"""Plans with what each of their devices may hold, side by side, so that all of it is priced at once.

Plans of different pipelines have different holdings: rows are as long as the longest, and what only fills them up
repeats a row's first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costmodel.arrays import Bools, Ints, Num, num, per_stage
from costmodel.plan_costs import StageTimes
from costmodel.table import PlanTable, StageTable
from planner.search.layouts.splits import Splits


class Holdings:
    """The holdings of several ``Splits`` side by side, ``(groups, width)``; what fills a row up repeats its first.

    Attributes:
        device, dense, moe, head: what stages are made of, ``most``: ``Splits.all_again``.
        own: whether a place is a holding, not what fills up its row.
    """

    def __init__(self, groups: Sequence[Splits]) -> None:
        self.groups = groups
        lengths = np.array([len(splits.device) for splits in groups], dtype=np.int64)
        self.width = int(lengths.max(initial=0))
        place, first = np.arange(self.width), (np.cumsum(lengths) - lengths)[:, np.newaxis]
        self.own: Bools = place < lengths[:, np.newaxis]
        self._at = first + np.where(self.own, place, 0)
        self.device = self._padded([splits.device for splits in groups])
        self.dense = self._padded([splits.dense_layers for splits in groups])
        self.moe = self._padded([splits.moe_layers for splits in groups])
        self.most = self._padded([splits.all_again for splits in groups])
        last = np.array([splits.pipeline.last for splits in groups], dtype=np.int64)
        self.head = num(self.device == last[:, np.newaxis])

    def _padded(self, values: Sequence[Ints]) -> Ints:
        return np.asarray(np.concatenate(values)[self._at], dtype=np.int64)

    @cached_property
    def again(self) -> tuple[Ints, Ints]:
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Plans, and for each the place of its ``Splits``."""

    table: PlanTable
    holdings: Holdings
    of_row: Ints

    def take(self, rows: Ints) -> Batch:
        """The chosen rows."""
        return Batch(table=self.table.take(rows), holdings=self.holdings, of_row=self.of_row[rows])

    @property
    def groups(self) -> Sequence[Splits]:
        """All ways to share out layers."""
        return self.holdings.groups

    @property
    def all_again(self) -> Ints:
        """``(rows, width)``; the number to run again of each chunk at which all layers of a holding do."""
        return np.asarray(self.holdings.most[self.of_row])

    @property
    def layers(self) -> tuple[Num, Num]:
        """(dense, MoE) layers of the model."""
        pipeline = self.groups[0].pipeline
        dense = pipeline.dense if isinstance(pipeline.dense, int) else len(pipeline.dense)
        return num(dense), num(pipeline.layers - dense)

    def layers_again(self, told: Ints) -> tuple[Ints, Ints]:
        """``(rows, width)`` (dense, MoE) layers that run again where each holding is told to run so many of a chunk."""
        dense, moe = self.holdings.again
        at = self.of_row[:, np.newaxis], np.arange(self.holdings.width), told
        return dense[at], moe[at]

    def stages(self, told: Ints) -> StageTable:
        """The holdings as stages."""
        device = num(self.holdings.device)[self.of_row]
        dense, moe = self.layers_again(told)
        return StageTable(
            index=device,
            dense_layers=num(self.holdings.dense)[self.of_row],
            moe_layers=num(self.holdings.moe)[self.of_row],
            has_embedding=num(device == 0.0),
            has_head=self.holdings.head[self.of_row],
            work_share=np.ones((1, 1)),
            recomputed_dense=num(dense),
            recomputed_moe=num(moe),
        )

    def again_s(self, times: StageTimes, told: Ints) -> Num:
        """Seconds of one micro-batch in what runs again of each holding, never less than nothing."""
        dense_s, moe_s = times.again_s(num(1.0), num(0.0)), times.again_s(num(0.0), num(1.0))
        dense, moe = self.layers_again(told)
        return dense * per_stage(np.maximum(dense_s, 0.0)) + moe * per_stage(np.maximum(moe_s, 0.0))
