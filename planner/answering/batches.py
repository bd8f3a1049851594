"""Global batches other than the one asked for, where a tolerance allows them; the objective is then one per sequence.

A batch makes sense if the devices divide it better: ranked by the most devices that some mesh can use with it, then by
how many degrees of data parallelism do, then by how near it is. Each of the best is searched like a question of its
own, and the plans of all are ranked together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil, floor
from typing import Any

import numpy as np

from costmodel.arrays import Ints
from costmodel.fingerprint import plan_id_in
from planner.answering.clock import Clock
from planner.explain.explanation import answered, runners_up
from planner.search.answer import answer_to
from planner.search.constraints import Contradiction
from planner.search.request import SearchRequest
from planner.search.solve import Progress
from planner.search.space import divisors, domains

Json = dict[str, Any]

MOST_BATCHES = 8
"""Batches that are searched, the one asked for among them."""

_FAMILY = ("tp", "cp", "pp", "ep", "etp", "dp", "micro_batch_size", "schedule")


def over_batches(request: SearchRequest, clock: Clock, progress: Progress | None = None, *, why: bool = True) -> Json:
    """The answer over all batches that may be; that of the search itself where only one may.

    ``best``, ``bound`` and ``gap`` are per sequence where a tolerance was asked for (``batches.per``): seconds, or the
    price, of a step over its sequences. ``fewest_devices`` stays a number of devices.

    Args:
        why: as in ``answer_of``: where nothing fits, for the batch asked for.
    """
    if not request.batch_tolerance:
        return answered(request, progress, clock.stopped, why=why)
    sizes = sensible_batches(request)
    answers: list[Json] = []
    for place, size in enumerate(sizes):
        seconds = clock.seconds(among=len(sizes) - place)
        own = of_batch(request, size, seconds=seconds, explain=request.explain and not place)
        answers.append(answered(own, None if place else progress, clock.stopped, why=False))
    found = _together(request, sizes, answers)
    if found.get("explanation"):
        found["explanation"] |= {"runners_up": runners_up(found["plans"])}
    if why and found["status"] == "infeasible":
        own = of_batch(request, sizes[0], seconds=clock.seconds())
        found |= {"infeasibility": answer_to(own, stopped=clock.stopped)["infeasibility"]}
    return found


def of_batch(request: SearchRequest, size: int, *, seconds: float, explain: bool = False) -> SearchRequest:
    """The same question about another batch."""
    work, asked = request.scenario.workload, request.scenario.workload.global_batch_size
    limit = request.max_step_time_s
    return replace(
        request,
        scenario=request.scenario.model_copy(update={"workload": work.model_copy(update={"global_batch_size": size})}),
        max_step_time_s=None if limit is None else limit * size / asked,
        batch_tolerance=0.0,
        max_seconds=seconds,
        explain=explain,
    )


def sensible_batches(request: SearchRequest) -> list[int]:
    """The batches that are searched: the one asked for, then those that the devices divide best."""
    asked, share = request.scenario.workload.global_batch_size, request.batch_tolerance
    low, high = max(1, ceil(asked * (1.0 - share))), floor(asked * (1.0 + share))
    try:
        used = _devices_used(request, range(low, high + 1))
    except Contradiction:
        return [asked]  # no batch mends what contradicts itself
    others = [size for size in range(low, high + 1) if size != asked]
    others.sort(key=lambda size: (*(-figure for figure in used[size]), abs(size - asked), size))
    return [asked, *(size for size in others if used[size][0] >= used[asked][0])][:MOST_BATCHES]


def _devices_used(request: SearchRequest, sizes: Sequence[int]) -> dict[int, tuple[int, int]]:
    """For each batch the most devices of a mesh, and how many degrees of data parallelism use as many."""
    scenario, found = request.scenario, domains(request)
    units = {tp * cp * pp for tp in found.tp for cp in found.cp for pp in found.pp}
    # Inside one node any number of devices may be idle.
    idle_by = scenario.cluster.devices_per_node if scenario.devices > scenario.cluster.devices_per_node else 1
    most = _most_used(units, min(scenario.devices, max(sizes)), scenario.devices, idle_by)
    counted: dict[int, tuple[int, int]] = {}
    for size in sizes:
        ways = [int(most[dp]) for dp in divisors(size) if dp < len(most) and request.constraints.allows("dp", dp)]
        counted[size] = (max(ways), ways.count(max(ways)))
    return counted


def _most_used(units: Iterable[int], highest_dp: int, devices: int, idle_by: int) -> Ints:
    """By degree of data parallelism the most devices that a mesh uses with it, idle ones in whole nodes; else 0."""
    dp, found = np.arange(highest_dp + 1), np.zeros(highest_dp + 1, dtype=np.int64)
    for unit in units:
        used = unit * dp
        fits = (used <= devices) & ((devices - used) % idle_by == 0)
        found = np.maximum(found, np.where(fits, used, 0))
    return found


def _together(request: SearchRequest, sizes: Sequence[int], answers: Sequence[Json]) -> Json:
    """One answer of several; what is not about plans is that of the batch asked for."""
    asked = answers[0]
    per_sequence = request.objective != "fewest_devices"
    units = [size if per_sequence else 1 for size in sizes]
    complete = all(answer["proven_top_k"] or answer["status"] == "infeasible" for answer in answers)
    ranked = _ranked(request, sizes, answers)
    found = {**asked, "plans": ranked}
    bounds = [a["bound"] / unit for unit, a in zip(units, answers, strict=True) if a["bound"] is not None]
    bounded = all(answer["bound"] is not None or answer["status"] == "infeasible" for answer in answers)
    optimal = all(answer["status"] in ("optimal", "infeasible") for answer in answers)
    found["bound"] = min(bounds) if bounds and bounded else None
    bests = [a["best"] / unit for unit, a in zip(units, answers, strict=True) if a["plans"]]
    found["best"] = min(bests, default=None)
    best, bound = found["best"], found["bound"]
    found["gap"] = (best - bound) / best if best is not None and bound is not None else None
    if ranked:
        found["status"] = "optimal" if optimal else "feasible"
        found["infeasibility"] = None
    elif not optimal:
        found["status"] = "unknown"
    found["proven_top_k"] = complete and bool(ranked)
    found["plans_within"] = max(answer["plans_within"] for answer in answers)
    told = dict.fromkeys(line for answer in answers for line in answer["warnings"])
    found["warnings"] = [*told, *_changed(request, ranked)]
    sums = ("elapsed_s", "plans_considered", "meshes", "master_solutions")
    found["search"] = asked["search"] | {name: sum(answer["search"][name] for answer in answers) for name in sums}
    found["search"]["elapsed_s"] = round(found["search"]["elapsed_s"], 3)
    found["batches"] = {
        "asked": sizes[0],
        "tolerance": request.batch_tolerance,
        "searched": list(sizes),
        "per": "sequence" if per_sequence else "step",
    }
    return found


def _ranked(request: SearchRequest, sizes: Sequence[int], answers: Sequence[Json]) -> list[Json]:
    """The best different plans of all batches; of one that is there with several batches the best of them.

    Plans that are not among the best k of their own batch can't be among the best k of all.
    """
    entries = [(size, entry) for size, answer in zip(sizes, answers, strict=True) for entry in answer["plans"]]
    entries.sort(key=lambda pair: (_order(request, pair[1]), abs(pair[0] - sizes[0]), pair[1]["rank"]))
    different: dict[tuple[Any, ...], Json] = {}
    for _, entry in entries:
        different.setdefault(tuple(entry["plan"][axis] for axis in _FAMILY), entry)
    return [
        entry | {"rank": rank, "id": plan_id_in(request.scenario, entry["plan"])}
        for rank, entry in enumerate(list(different.values())[: request.top], start=1)
    ]


def value_of(request: SearchRequest, entry: Json) -> float:
    """Seconds per sequence of a plan, times its devices where cost is minimised."""
    plan = entry["plan"]
    per_sequence: float = entry["prediction"]["step_time_s"] / plan["global_batch_size"]
    return per_sequence * plan["devices_used"] if request.objective == "cost" else per_sequence


def _order(request: SearchRequest, entry: Json) -> tuple[float, float]:
    value, devices = value_of(request, entry), float(entry["plan"]["devices_used"])
    return (devices, value) if request.objective == "fewest_devices" else (value, devices)


def _changed(request: SearchRequest, plans: Iterable[Json]) -> list[str]:
    asked = request.scenario.workload.global_batch_size
    others = sorted({entry["plan"]["global_batch_size"] for entry in plans} - {asked})
    return [
        f"global_batch_size {size} changes the training: {asked} sequences a step were asked for "
        f"({size / asked - 1.0:+.1%})"
        for size in others
    ]
