"""A question with some of its fields changed and all else as it was: model and cluster are not looked up again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from costmodel.catalog.framework_catalog import load_optimizer, load_precision
from costmodel.scenario import Scenario
from planner.resolving import check_size, free_bytes
from planner.search.allowed import allowed_options
from planner.search.constraints import Constraints
from planner.search.request import SearchRequest

_SIZES = ("global_batch_size", "seq_len")
_AS_THEY_ARE = ("min_used", "min_devices")


def changed(request: SearchRequest, fields: Mapping[str, Any]) -> SearchRequest:
    """The question with these fields of ``POST /v1/searches``, of those that a relaxation changes.

    Raises:
        InvalidInput: a value is unusable, or the scenario does not allow it.
        NotImplementedError: a field that no relaxation changes.
    """
    left = dict(fields)
    scenario = _changed_scenario(request.scenario, left)
    constraints = request.constraints
    if "pins" in left:
        constraints = replace(constraints, pins=Constraints.parse(left.pop("pins"), []).pins)
    if "forbids" in left:
        constraints = replace(constraints, forbids=Constraints.parse([], left.pop("forbids")).forbids)
    also = allowed_options(scenario.framework, left.pop("allow")) if "allow" in left else request.also
    more = {name: left.pop(name) for name in _AS_THEY_ARE if name in left}
    if left:
        raise NotImplementedError(f"changing {', '.join(left)}")
    return replace(request, scenario=scenario, constraints=constraints, also=also, **more)


def _changed_scenario(scenario: Scenario, fields: dict[str, Any]) -> Scenario:
    """With what of the fields it is about, which is taken out of them."""
    work: dict[str, Any] = {}
    for name in _SIZES:
        if name in fields:
            work[name] = fields.pop(name)
            check_size(name.replace("_", "-"), work[name])
    if "precision" in fields:
        work["precision"] = load_precision(fields.pop("precision"))
    if "optimizer" in fields:
        work["optimizer"] = load_optimizer(fields.pop("optimizer"))
    update: dict[str, Any] = {"workload": scenario.workload.model_copy(update=work)}
    if "devices" in fields:
        update["devices"] = fields.pop("devices")
        check_size("devices", update["devices"])
    if "min_free_gib" in fields:
        update["min_free_bytes"] = free_bytes(fields.pop("min_free_gib"), scenario.cluster.accelerator.memory_bytes)
    found = scenario.model_copy(update=update)
    found.check()
    return found
