"""Rows lie between meshes and plans: a mesh with its policy and sharding, before stages and CP exchange."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Ints, distinct, taken
from costmodel.table import AXES, PlanTable
from costmodel.terms.communication import P2P
from planner.search.choices import option_columns, policy_columns
from planner.search.request import SearchRequest
from planner.search.space import (
    MESH_AXES,
    ROW_AXES,
    SHARD_AXES,
    STAGE_AXES,
    Columns,
    offered_cp_comm,
    sharding_options,
    stage_options,
)


def rows_of(request: SearchRequest, meshes: Columns, policy: Ints, mesh: Ints) -> tuple[Columns, Ints]:
    """Every (policy, mesh) pair with every way to shard it.

    Args:
        policy: places among ``choices.policies``.

    Returns:
        Columns of ``ROW_AXES``, and for each row the position of its pair.
    """
    keys = [meshes[axis][mesh] for axis in ("tp", "cp", "dp")]
    first, kind = distinct(keys)
    tables = [
        np.array(sharding_options(request, *key), dtype=np.int64).reshape(-1, 3)
        for key in zip(*(column[first].tolist() for column in keys), strict=True)
    ]
    size = np.array([len(table) for table in tables], dtype=np.int64)
    source = np.repeat(np.arange(len(mesh)), size[kind])
    # The place of each row in the list of all tables: where its pair's begins, and how far it is into that.
    begins, into = (np.cumsum(size) - size)[kind], np.cumsum(size[kind]) - size[kind]
    place = begins[source] + np.arange(len(source)) - into[source]
    sharding = np.concatenate(tables)[place] if tables else np.zeros((0, 3), dtype=np.int64)
    columns = {axis: meshes[axis][mesh][source] for axis in MESH_AXES}
    columns |= dict(zip(SHARD_AXES, np.ascontiguousarray(sharding.T), strict=True))
    recompute, options = policy_columns(request, policy)
    columns |= {"recompute": recompute[source], "options": options[source]}
    return {axis: columns[axis] for axis in ROW_AXES}, source


def expand(
    request: SearchRequest,
    rows: Columns,
    *,
    leanest: bool = False,
    every_layout: bool = True,
    every_chunking: bool = False,
) -> tuple[PlanTable, Ints]:
    """Rows times their stage options and CP exchanges.

    Args:
        leanest: keep only what can need the least memory: the fewest virtual stages, which keep the fewest activations
            alive, and the ring, which buffers the least of all CP exchanges.
        every_chunking: keep every number of virtual stages all the same.
        every_layout: keep every way to lay the layers over the stages, not only the plainest.

    Returns:
        The plans, and for each the position of its row.
    """
    sources = [np.zeros(0, dtype=np.int64)]
    chosen_stages = [np.zeros((0, len(STAGE_AXES)), dtype=np.int64)]
    chosen_exchanges = [np.zeros(0, dtype=np.int64)]
    first, kind = distinct([rows["pp"], np.minimum(rows["cp"], 2)])
    for code, (pp, cp) in enumerate(zip(rows["pp"][first].tolist(), rows["cp"][first].tolist(), strict=True)):
        stages = np.array(stage_options(request, pp), dtype=np.int64).reshape(-1, len(STAGE_AXES))
        exchanges = np.array(offered_cp_comm(request) if cp > 1 else (0,), dtype=np.int64)
        if leanest and P2P in exchanges:
            exchanges = np.array([P2P], dtype=np.int64)
        if leanest and not every_chunking and len(stages):
            stages = stages[stages[:, 0] == stages[:, 0].min()]
        if not every_layout:
            stages = stages[:1]
        at = np.flatnonzero(kind == code)
        row, stage, exchange = (index.ravel() for index in np.indices((len(at), len(stages), len(exchanges))))
        sources.append(at[row])
        chosen_stages.append(stages[stage])
        chosen_exchanges.append(exchanges[exchange])
    source = np.concatenate(sources)
    columns = {axis: taken(column, source) for axis, column in rows.items()}
    columns |= dict(zip(STAGE_AXES, np.ascontiguousarray(np.concatenate(chosen_stages).T), strict=True))
    columns["cp_comm_type"] = np.concatenate(chosen_exchanges)
    columns |= option_columns(request, columns)
    return PlanTable(columns={axis: columns[axis] for axis in AXES}), source
