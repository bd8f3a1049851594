"""Plans as columns. One plan is a table of one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np

from costmodel.arrays import Bools, Ints, Num, distinct, num, taken
from costmodel.scenario import Scenario
from costmodel.schedules import may_wait, placements
from costmodel.spec.model import DenseLayers
from costmodel.spec.options import OPTION_NAMES, usual_options
from costmodel.stages import (
    Layout,
    Placement,
    StageKind,
    chunks_by_cost,
    layers_per_chunk,
    representative_stages,
    representatives,
    stage_kinds,
    stages_of_chunks,
)

BASE_AXES: tuple[str, ...] = (
    "tp",
    "cp",
    "cp_comm_type",
    "ep",
    "etp",
    "dp",
    "dp_replicate",
    "dp_shard",
    "pp",
    "vpp",
    "layout",
    "zero_stage",
    "micro_batch_size",
    "num_microbatches",
    "recompute",
    "schedule",
)
AXES: tuple[str, ...] = (*BASE_AXES, "recompute_modules", *OPTION_NAMES)
"""``recompute_modules`` is 0 for what the framework recomputes by itself, else a bit for each of RECOMPUTE_MODULES."""


_Count = TypeVar("_Count", int, Ints)


def mesh_size(columns: Mapping[str, _Count]) -> _Count:
    """Devices of the dense mesh, ``tp * cp * dp * pp``, which the expert mesh folds over."""
    return columns["tp"] * columns["cp"] * columns["dp"] * columns["pp"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanTable:
    """Rows of plans over the axes of ``AXES``.

    Axes of words hold codes: positions in the tuples of ``costmodel.spec.plan``.

    ``dp`` is ``dp_replicate * dp_shard``; all columns have the same length.
    """

    columns: Mapping[str, Ints]

    def __len__(self) -> int:
        return len(self.columns["tp"])

    def __getitem__(self, axis: str) -> Ints:
        return self.columns[axis]

    @cached_property
    def devices_used(self) -> Ints:
        """Devices of each plan."""
        return mesh_size(self.columns)

    def take(self, rows: Ints | Bools | slice) -> PlanTable:
        """The chosen rows, in the order given."""
        return PlanTable(columns={axis: taken(column, rows) for axis, column in self.columns.items()})

    def row(self, index: int) -> dict[str, int]:
        """One row as plain numbers."""
        return {axis: int(column[index]) for axis, column in self.columns.items()}

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, int]]) -> PlanTable:
        """A table from rows that name every base axis; the options that they leave out are the usual ones."""
        columns = {axis: np.array([row[axis] for row in rows], dtype=np.int64) for axis in BASE_AXES}
        usual = {"recompute_modules": np.zeros(len(rows), dtype=np.int64)} | usual_options(columns)
        for axis, column in usual.items():
            given = [row.get(axis, other) for row, other in zip(rows, column.tolist(), strict=True)]
            columns[axis] = np.array(given, dtype=np.int64)
        return cls(columns=columns)

    @classmethod
    def concatenate(cls, tables: Sequence[PlanTable]) -> PlanTable:
        """All rows of several tables."""
        return cls(columns={axis: np.concatenate([table[axis] for table in tables]) for axis in AXES})


@dataclass(frozen=True, kw_only=True, eq=False)
class StageTable:
    """What the stages of each plan hold: arrays of shape ``(rows, stages)``; padding repeats a row's first stage.

    ``recomputed_dense`` and ``recomputed_moe`` say how many of a stage's layers run their forward pass again; None, for
    all rows at once, where a row's policy says it of all its layers. Rows that say it have all their stages.

    ``chunks`` are the virtual stages of interleaved pipelines, each as if it were a device, in the order in which a
    micro-batch meets them; of other rows they say nothing. None where no row needs them, or where a bound will do.
    """

    index: Num
    dense_layers: Num
    moe_layers: Num
    has_embedding: Num
    has_head: Num
    work_share: Num
    recomputed_dense: Num | None = None
    recomputed_moe: Num | None = None
    chunks: StageTable | None = None

    @classmethod
    def of(cls, rows: Sequence[Sequence[StageKind]]) -> StageTable:
        """Pad to the longest row."""
        width = max((len(row) for row in rows), default=1)
        padded = [list(row) + [row[0]] * (width - len(row)) for row in rows]

        counted = any(stage.recomputed_dense is not None for row in padded for stage in row)

        def column(name: str) -> Num:
            return num([[getattr(stage, name) for stage in row] for row in padded]).reshape(len(padded), width)

        return cls(
            index=column("index"),
            dense_layers=column("dense_layers"),
            moe_layers=column("moe_layers"),
            has_embedding=column("has_embedding"),
            has_head=column("has_head"),
            work_share=column("work_share"),
            recomputed_dense=column("recomputed_dense") if counted else None,
            recomputed_moe=column("recomputed_moe") if counted else None,
        )

    def take(self, rows: Ints) -> StageTable:
        """The chosen rows."""
        return StageTable(
            index=self.index[rows],
            dense_layers=self.dense_layers[rows],
            moe_layers=self.moe_layers[rows],
            has_embedding=self.has_embedding[rows],
            has_head=self.has_head[rows],
            work_share=self.work_share[rows],
            recomputed_dense=None if self.recomputed_dense is None else self.recomputed_dense[rows],
            recomputed_moe=None if self.recomputed_moe is None else self.recomputed_moe[rows],
            chunks=None if self.chunks is None else self.chunks.take(rows),
        )

    @property
    def is_own(self) -> Num:
        """1 for a stage of its row, 0 for what only pads it."""
        place = np.arange(self.index.shape[-1])
        return num((self.index > 0) | (place == 0))

    def differ(self, count: Ints) -> Bools:
        """The rows of whose first ``count`` stages some have other layers than the first, or run others again."""
        columns = (self.dense_layers, self.moe_layers, self.recomputed_dense, self.recomputed_moe)
        own = np.arange(self.index.shape[-1]) < count[:, np.newaxis]
        found = np.zeros(own.shape, dtype=np.bool_)
        for column in columns:
            if column is not None:
                found |= own & (column != column[:, :1])
        return np.asarray(found.any(axis=-1))

    def with_chunks(self, chunks: StageTable | None) -> StageTable:
        """The same with its rows' virtual stages."""
        return replace(self, chunks=chunks)


def virtual_stages(
    chunks: Sequence[Sequence[Sequence[int]] | None],
    dense_layers: Sequence[DenseLayers],
    again: Sequence[Sequence[Sequence[int]] | None] | None = None,
) -> StageTable:
    """The virtual stages of pipelines in a loop, by row; one without layers for a row of which none are wanted.

    Args:
        chunks: layers, ``chunks[row][device][chunk]``.
        dense_layers: those of each row's model.
        again: of the same layers those that run their forward pass again; None where the policies say it.
    """
    counts = [1 if own is None else len(own) * len(own[0]) for own in chunks]
    shape = (len(chunks), max(counts, default=1))
    dense, moe, dense_again, moe_again, head = (np.zeros(shape) for _ in range(5))
    for row, own in enumerate(chunks):
        if own is None:
            continue
        layers, place = np.array(own).T.ravel(), slice(0, counts[row])
        start = np.cumsum(layers) - layers
        dense[row, place] = _dense_among(dense_layers[row], start, layers)
        moe[row, place] = layers - dense[row, place]
        head[row, counts[row] - 1] = 1.0
        running = None if again is None else again[row]
        if running is not None:
            those = np.array(running).T.ravel()
            dense_again[row, place] = _dense_among(dense_layers[row], start, those)
            moe_again[row, place] = those - dense_again[row, place]
    index = np.broadcast_to(num(np.arange(shape[1])), shape)
    return StageTable(
        index=index,
        dense_layers=dense,
        moe_layers=moe,
        has_embedding=num(index == 0.0),
        has_head=head,
        work_share=np.ones(shape),
        recomputed_dense=None if again is None else dense_again,
        recomputed_moe=None if again is None else moe_again,
    )


def are_unlike(chunks: Sequence[Sequence[int]], dense_layers: DenseLayers) -> bool:
    """Whether some chunks may have other layers than others."""
    mixed = dense_layers not in (0, sum(map(sum, chunks)))
    return mixed or len({count for device in chunks for count in device}) > 1


def _dense_among(dense_layers: DenseLayers, start: Ints, count: Ints) -> Ints:
    """Dense layers among ``count`` layers from each ``start`` on."""
    if isinstance(dense_layers, int):
        return np.asarray(np.minimum(start + count, dense_layers) - np.minimum(start, dense_layers))
    return np.asarray(np.searchsorted(dense_layers, start + count) - np.searchsorted(dense_layers, start))


def layer_counts(scenario: Scenario) -> tuple[int, DenseLayers]:
    """(decoder layers, which of them are dense) of the scenario's model."""
    return scenario.model.num_layers, scenario.model.dense_layers


def stage_table_of(scenarios: Sequence[Scenario], which: Ints, table: PlanTable) -> StageTable:
    """The stages that can be the worst, of plans of different scenarios; the first stage always comes first.

    These plans ran: where a framework lays out layers by their cost, they have those whatever their ``layout`` says.

    Args:
        which: position in ``scenarios`` of each row's scenario.
    """
    shapes: dict[Any, int] = {}
    keys = [(layer_counts(scenario), _costs(scenario)) for scenario in scenarios]
    shape_of = np.array([shapes.setdefault(key, len(shapes)) for key in keys])[which]
    return _stage_table(
        lambda row: scenarios[int(which[row])], table, [shape_of], representative_stages, laid_out_by_cost=True
    )


def _costs(scenario: Scenario) -> tuple[int, int] | None:
    """(cost of a layer, of the head) to a framework that lays them out by it."""
    model = scenario.model
    if not scenario.framework.lays_out_by_cost:
        return None
    layer = 4 * model.num_heads * model.head_dim + 3 * model.ffn_hidden_size
    return layer * model.hidden_size, model.vocab_size * model.hidden_size


def stage_table(scenario: Scenario, table: PlanTable, *, every_stage: bool = False, chunks: bool = True) -> StageTable:
    """The stages of each plan: those that can be the worst, or all of them.

    Args:
        chunks: with virtual stages, by which chunks of an interleaved pipeline wait for each other; without, step times
            are bounds from below.

    Raises:
        ValueError: when a row's layout needs a negative number of layers (such rows never leave the search space).
    """
    describe = stage_kinds if every_stage else representative_stages
    return _stage_table(lambda row: scenario, table, [], describe, chunks=chunks)


_Describe: TypeAlias = Callable[..., tuple[StageKind, ...] | None]


def _stage_table(
    scenario_of: Callable[[int], Scenario],
    table: PlanTable,
    more_keys: Sequence[Ints],
    describe: _Describe,
    *,
    laid_out_by_cost: bool = False,
    chunks: bool = True,
) -> StageTable:
    """The stages of every row, described once for rows that agree in pp, vpp, layout, placement and ``more_keys``."""
    placement = placements(table["schedule"])
    columns = [table["pp"], table["vpp"], table["layout"], placement]
    first, inverse = distinct([*more_keys, *columns])
    kinds: list[tuple[StageKind, ...]] = []
    for row in first.tolist():
        pp, vpp, layout, placed = (int(column[row]) for column in columns)
        scenario = scenario_of(row)
        costs = _costs(scenario) if laid_out_by_cost and pp > 1 and vpp == 1 and placed == Placement.LOOP else None
        if costs is not None:
            layers, dense = layer_counts(scenario)
            kinds.append(representatives(stages_of_chunks(chunks_by_cost(layers, pp, *costs), dense)))
            continue
        kinds.append(_stages_of(scenario, pp, vpp, Layout(layout), Placement(placed), describe))
    stages = StageTable.of(kinds)
    if chunks:
        stages = stages.with_chunks(_chunks_of_recipes(scenario_of, table, first))
    return stages.take(inverse)


def _chunks_of_recipes(scenario_of: Callable[[int], Scenario], table: PlanTable, rows: Ints) -> StageTable | None:
    """The virtual stages of interleaved rows that are laid out by recipe; None where all have chunks alike."""
    counts = [layer_counts(scenario_of(row)) for row in rows.tolist()]
    shapes = zip(*(table[axis][rows].tolist() for axis in ("pp", "vpp", "layout")), strict=True)
    waits = may_wait(table["schedule"][rows], table["pp"][rows], table["vpp"][rows])
    chunks = [
        layers_per_chunk(layers, pp, vpp, Layout(layout)) if own else None
        for (layers, _), (pp, vpp, layout), own in zip(counts, shapes, waits.tolist(), strict=True)
    ]
    chunks = [
        own if own is not None and are_unlike(own, dense) else None
        for own, (_, dense) in zip(chunks, counts, strict=True)
    ]
    return virtual_stages(chunks, [dense for _, dense in counts]) if any(chunks) else None


def _stages_of(
    scenario: Scenario, pp: int, vpp: int, layout: Layout, placement: Placement, describe: _Describe
) -> tuple[StageKind, ...]:
    stages = describe(*layer_counts(scenario), pp, vpp, layout, placement)
    if stages is None:
        layers = scenario.model.num_layers
        raise ValueError(f"{layers} layers have no {layout.name} layout on pp {pp}, vpp {vpp}")
    return stages
