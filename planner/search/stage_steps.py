"""Relaxations over stage options: the least step time of rows, and whether they may fit.

The closed form of the step time is ``max_s (m W_s + R_s + O_s) + waiting * mean W + fixed``. A maximum is at least
the mean, and at least what the device with the most layers does, so with ``body`` and ``ends`` the seconds of one
micro-batch in all layers and at both ends of the model, p stages, and ``t`` those of the layers of that device

    step >= (m + waiting) * ((body + ends) / p + host) + fixed
    step >= m * t + waiting / p * body + (m + waiting) * host + fixed
    step >= m * t0 + end + waiting / p * body + (m + waiting) * host + fixed

with ``t0`` what an even share of the layers takes and ``end`` what then comes once a step: see
``planner.search.end_bound``. Stage boundaries are left out: they are never negative. ``t`` holds over all ways to lay
the layers out and to run some of them again: see ``planner.search.device_bounds``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from costmodel.arrays import Bools, Ints, Num, num
from costmodel.facts import Facts
from costmodel.schedules import least_waiting
from costmodel.spec.plan import SCHEDULES
from planner.search.device_bounds import RowBound, StageBound, fits, layers_in_question, slowest_layers_s
from planner.search.lawful import lawful
from planner.search.request import SearchRequest
from planner.search.space import Columns, stage_options


def stage_bounds(request: SearchRequest, pp: int) -> tuple[StageBound, ...]:
    """The stage options of one pipeline depth with their bounds."""
    return _stage_bounds(request.of_any_size, pp)


@lru_cache(maxsize=4096)
def _stage_bounds(request: SearchRequest, pp: int) -> tuple[StageBound, ...]:
    pairs = dict.fromkeys((vpp, schedule) for vpp, _, schedule in stage_options(request, pp))
    return tuple(
        StageBound(
            pp=pp,
            vpp=vpp,
            schedule=schedule,
            waiting=float(least_waiting(np.array(schedule), num(pp), num(vpp))),
            layers=layers_in_question(request.scenario),
        )
        for vpp, schedule in pairs
    )


def step_time_bound(
    f: Facts,
    bounds: Sequence[StageBound],
    m: Ints,
    rows: RowBound,
    usable: float | Num | None,
    *,
    least_s: bool = True,
) -> Num:
    """Least step times ``(bounds, rows)`` with these stage options of one pipeline depth: the better relaxation.

    Args:
        usable: bytes of a device; seconds are infinite where nothing fits. None where memory is no matter.
        least_s: as in ``slowest_layers_s``: False is quicker, and a looser bound where memory is short.
    """
    pp, count = bounds[0].pp, num(m)
    waiting = num([bound.waiting for bound in bounds])[:, np.newaxis]
    host = (count + waiting) * f.cal.fixed_microbatch_s + f.cal.fixed_step_s
    slowest_s, again_s = slowest_layers_s(bounds, m, rows, usable, least_s=least_s)
    body = rows.body_s + again_s
    mean = (count + waiting) * (body + rows.ends_s) / pp
    even_s = num([bound.share for bound in bounds])[:, np.newaxis] * rows.layer_s
    slowest = np.maximum(count * slowest_s, count * even_s + rows.end_s) + waiting / pp * body
    bound_s: Num = (np.maximum(mean, slowest) + host) * f.cal.time_level
    return bound_s


@dataclass(frozen=True, kw_only=True)
class StageSteps:
    """Rows with each of their stage options: the row's place, the option, and the least step time."""

    row: Ints
    vpp: Ints
    schedule: Ints
    step_time_s: Num

    def take(self, places: Ints) -> StageSteps:
        """Some of them."""
        return StageSteps(
            row=self.row[places],
            vpp=self.vpp[places],
            schedule=self.schedule[places],
            step_time_s=self.step_time_s[places],
        )

    def least(self, rows: int) -> Num:
        """Of each of so many rows over its options; infinite where none is."""
        least = np.full(rows, np.inf)
        np.minimum.at(least, self.row, self.step_time_s)
        return least


def stage_steps(
    request: SearchRequest,
    f: Facts,
    meshes: Columns,
    rows: RowBound,
    usable: float | None,
    *,
    least_s: bool = True,
) -> StageSteps:
    """Least step time of each row under each of its stage options; infinite where it can't fit."""
    parts: list[tuple[Ints, int, int, Num]] = []
    for pp in np.unique(meshes["pp"]):
        at = np.flatnonzero(meshes["pp"] == pp)
        m, own = meshes["num_microbatches"][at], rows.take(at)
        bounds = stage_bounds(request, int(pp))
        steps = step_time_bound(f, bounds, m, own, usable, least_s=least_s) if bounds else ()
        for bound, step in zip(bounds, steps, strict=True):
            parts.append((at, bound.vpp, bound.schedule, step))
    none = np.zeros(0, dtype=np.int64)
    return StageSteps(
        row=np.concatenate([none, *(at for at, *_ in parts)]),
        vpp=np.concatenate([none, *(np.full(len(at), vpp) for at, vpp, *_ in parts)]),
        schedule=np.concatenate([none, *(np.full(len(at), schedule) for at, _, schedule, _ in parts)]),
        step_time_s=np.concatenate([num(none), *(step for *_, step in parts)]),
    )


def rows_that_may_fit(request: SearchRequest, rows: Columns, bounds: RowBound, usable: float) -> Bools:
    """The rows whose layers may fit into ``usable`` bytes a device with some stage option."""
    possible = np.zeros(len(rows["tp"]), dtype=np.bool_)
    for pp in np.unique(rows["pp"]).tolist():
        at, options = np.flatnonzero(rows["pp"] == pp), stage_bounds(request, pp)
        if options:
            possible[at] = fits(options, rows["num_microbatches"][at], bounds.take(at), usable)
    return possible


def stages_that_may_fit(request: SearchRequest, rows: Columns, bounds: RowBound, usable: float) -> Bools:
    """``(rows, vpp, schedule)``: the stage options with which the layers may fit into ``usable`` bytes a device."""
    options = [option for pp in np.unique(rows["pp"]).tolist() for option in stage_bounds(request, pp)]
    most = max((option.vpp for option in options), default=0)
    possible = np.zeros((len(rows["tp"]), most + 1, len(SCHEDULES)), dtype=np.bool_)
    for pp in np.unique(rows["pp"]).tolist():
        at = np.flatnonzero(rows["pp"] == pp)
        for option in stage_bounds(request, pp):
            fitting = fits([option], rows["num_microbatches"][at], bounds.take(at), usable)
            possible[at, option.vpp, option.schedule] = fitting
    return possible


def least_step_time(
    request: SearchRequest, f: Facts, meshes: Columns, rows: RowBound, usable: float | None, *, least_s: bool = True
) -> Num:
    """Least step time of each row over its stage options; infinite where none fits into ``usable`` bytes.

    Stage options that a rule refuses are none, as far as the columns of ``meshes`` tell.
    """
    steps = stage_steps(request, f, meshes, rows, usable, least_s=least_s)
    some = steps.take(np.flatnonzero(np.isfinite(steps.step_time_s)))
    columns = {axis: column[some.row] for axis, column in meshes.items()} | {"vpp": some.vpp, "schedule": some.schedule}
    return some.take(np.flatnonzero(lawful(request, columns))).least(len(meshes["tp"]))
