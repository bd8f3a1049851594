"""Changes to what is trained that may make a plan fit: number formats, and what changes the training itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

import numpy as np

from costmodel.catalog.framework_catalog import load_precision, optimizer_recipes
from costmodel.errors import InvalidInput
from costmodel.rules import rules_for
from costmodel.scenario import lacking_format
from planner.search.change import Change, has_a_plan
from planner.search.conflict import Conflict
from planner.search.constraints import Contradiction
from planner.search.lifts import Late
from planner.search.request import SearchRequest
from planner.search.space import mesh_candidates

_MOST_BATCHES = 6
_SHORTEST = 512
_PRECISIONS = ("bf16", "fp16", "fp32")
"""What is offered where a device lacks a format, the first that it has."""


# -- recipes --------------------------------------------------------------------------------------------------------


def other_precision(request: SearchRequest) -> Iterator[Change]:
    accelerator = request.scenario.cluster.accelerator
    for name in _PRECISIONS:
        if lacking_format(load_precision(name), accelerator) is None:
            change = _with_workload(
                request,
                {"precision": load_precision(name)},
                told=f"train in {name}",
                flag=f"--precision {name}",
                fields={"precision": name},
                cost="no more devices, slower products",
            )
            if change is not None:
                yield change
            return


def fewer_moments(request: SearchRequest) -> Iterator[Change]:
    """The same optimizer with its moments in fewer bits, the most bits first."""
    own = request.scenario.workload.optimizer
    alike = (
        "master_bytes",
        "moments",
        "factored_moments",
        "newton_schulz_iterations",
        "rest_moments",
        "gradient_reads",
    )
    leaner = [
        other
        for other in optimizer_recipes()
        if all(getattr(other, name) == getattr(own, name) for name in alike)
        and other.moment_element_bytes < own.moment_element_bytes
    ]
    for other in sorted(leaner, key=lambda recipe: -recipe.moment_element_bytes):
        bits = round(8 * other.moment_element_bytes)
        change = _with_workload(
            request,
            {"optimizer": other},
            told=f"keep the optimizer's moments in {bits} bits ({other.name})",
            flag=f"--optimizer {other.name}",
            fields={"optimizer": other.name},
            cost=f"no more devices; changes the training: moments are rounded to {bits} bits",
        )
        if change is not None:
            yield change


def _with_workload(
    request: SearchRequest, update: dict[str, Any], *, told: str, flag: str, fields: dict[str, Any], cost: str
) -> Change | None:
    """The same question about another workload; None where the scenario does not allow it."""
    workload = request.scenario.workload.model_copy(update=update)
    scenario = request.scenario.model_copy(update={"workload": workload})
    try:
        scenario.check()
    except InvalidInput:
        return None
    return Change(told=told, request=replace(request, scenario=scenario), flags=(flag,), fields=fields, cost=cost)


def _first_with_a_plan(changes: Iterable[Change | None], late: Late) -> Iterator[Change]:
    """The first of some changes under which there is a plan, if any; they are made as they are asked for."""
    for change in changes:
        if late():
            return
        if change is not None and has_a_plan(change.request, late):
            yield change
            return


# -- batch and sequence ---------------------------------------------------------------------------------------------


def about_batch(request: SearchRequest, conflict: Conflict) -> bool:
    names = {rule.name for rule in rules_for(request.scenario.framework) if "num_microbatches" in rule.axes}
    return bool((names | {"batch_divisible"}) & set(conflict.rules))


def other_batch(request: SearchRequest, late: Late) -> Iterator[Change]:
    """The nearest batch below and the nearest above that do, of those that some dp and micro-batch divide."""
    batch = request.scenario.workload.global_batch_size
    try:
        meshes = mesh_candidates(request)
    except Contradiction:
        return
    units = np.unique(meshes["dp"] * meshes["micro_batch_size"])
    below, above = units * (batch // units), units * (batch // units + 1)
    nearest = np.unique(np.concatenate([below, above]))
    nearest = nearest[(nearest > 0) & (nearest != batch) & (nearest <= 2 * batch)]
    for side in (nearest[nearest < batch][::-1], nearest[nearest > batch]):
        yield from _first_with_a_plan(
            (
                _with_workload(
                    request,
                    {"global_batch_size": value},
                    told=f"a global batch of {value} instead of {batch}",
                    flag=f"--global-batch-size {value}",
                    fields={"global_batch_size": value},
                    cost="no more devices; changes the training: another batch",
                )
                for value in side[:_MOST_BATCHES].tolist()
            ),
            late,
        )


def shorter(request: SearchRequest, late: Late) -> Iterator[Change]:
    """Half the sequence length, or half of that."""
    own = request.scenario.workload.seq_len
    halves = takewhile(lambda length: length >= _SHORTEST and own % length == 0, (own >> times for times in count(1)))
    yield from _first_with_a_plan(
        (
            _with_workload(
                request,
                {"seq_len": length},
                told=f"sequences of {length} tokens instead of {own}",
                flag=f"--seq-len {length}",
                fields={"seq_len": length},
                cost="no more devices; changes the training: shorter sequences",
            )
            for length in halves
        ),
        late,
    )
