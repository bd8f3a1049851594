"""A stored question as the form would have it, to be asked again with changes.

The form takes names of the catalog only: a model or a cluster that was given as an object can't stand in it, nor a
calibration that was a file. The shipped calibration then takes its place, which a note says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from api.dashboard.searches.fields import as_typed, fields
from api.dashboard.searches.form import Form
from api.dashboard.words import GIB
from costmodel.calibration.calibration import DEFAULT_CALIBRATION, named_calibration
from costmodel.catalog.cluster_catalog import named_cluster
from costmodel.catalog.framework_catalog import load_framework
from costmodel.catalog.model_catalog import named_model
from costmodel.errors import InvalidInput
from costmodel.fingerprint import calibration_id, cluster_id, model_id
from db import records

_OF_THE_QUESTION = ("objective", "price_per_device_hour", "pins", "forbids", "min_used", "top", "max_seconds", "seed")
_LATER = ("allow", "explain", "min_devices", "max_step_time_s", "batch_tolerance", "pareto", "shortlist")
_OF_THE_SCENARIO = ("devices", "global_batch_size", "seq_len", "precision", "optimizer", "framework")


@dataclass(frozen=True, kw_only=True)
class _Named:
    """The model, the cluster or the calibration of a question, beside the catalog.

    Attributes:
        in_catalog: there is one of that name.
        same: and it is the one that was asked about.
    """

    kind: str
    name: str
    in_catalog: bool
    same: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def why_not_again(scenario: records.Scenario) -> str:
    """Why the form can't ask this again; empty when it can."""
    missing = [f"the {named}" for named in _named_in(scenario) if not named.in_catalog]
    if not missing:
        return ""
    return (
        f"The form takes names of the catalog only, and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
        "not in it: to ask again, POST the same JSON to /v1/searches with what is to change."
    )


def form_of(search: records.Search, scenario: records.Scenario) -> Form:
    """The form filled with a stored question; the notes say what it can't say, or what has another meaning now."""
    values = values_of(search, scenario)
    notes = [
        "Filled in with the question of an earlier search: change what you like, and ask.",
        *notes_of(search, scenario),
    ]
    typed = {shown.name: as_typed(values.get(shown.name)) for shown in fields()}
    return Form(typed=typed, notes=tuple(notes))


def values_of(search: records.Search, scenario: records.Scenario) -> dict[str, Any]:
    """A stored question as values of the API's body, ``SearchBody``; what the catalog lacks is None."""
    asked = search.question
    values = {name: asked[name] for name in _OF_THE_QUESTION}
    # Older questions were stored without these, and mean the defaults.
    values |= {name: asked[name] for name in _LATER if name in asked}
    values |= {name: getattr(scenario, name) for name in _OF_THE_SCENARIO}
    values["gradient_dtype"] = scenario.spec.get("gradient_dtype")
    values["framework_version"] = None if _is_current(scenario) else scenario.framework_version
    free = scenario.min_free_bytes
    values["min_free_gib"] = None if free is None else free / GIB
    values |= {named.kind: named.name if named.in_catalog else None for named in _named_in(scenario)}
    priced_by = _calibration_of(search)
    if priced_by.in_catalog and priced_by.name != DEFAULT_CALIBRATION:
        values["calibration"] = priced_by.name
    return values


def notes_of(search: records.Search, scenario: records.Scenario) -> list[str]:
    """What can't be asked again as it was, or has another meaning now."""
    notes: list[str] = []
    for named in _named_in(scenario):
        if not named.in_catalog:
            notes.append(f"The {named} is not in the catalog, and the form takes names of the catalog only.")
        elif not named.same:
            notes.append(
                f"The {named} of the catalog is not the one that was asked about: it has changed since then, or an "
                "object of that name was given."
            )
    priced_by = _calibration_of(search)
    if not priced_by.in_catalog:
        notes.append(f"The {priced_by} is not in the catalog: {DEFAULT_CALIBRATION} prices what is asked here.")
    elif not priced_by.same:
        notes.append(f"The {priced_by} of the catalog is not the one that priced it then.")
    return notes


def scaling_address(search: records.Search, scenario: records.Scenario) -> str:
    """The page that shows how a stored question scales, from a quarter of its devices to four times as many."""
    typed = dict(form_of(search, scenario).typed)
    devices = scenario.devices
    typed["devices"] = f"{devices // 4 if devices % 4 == 0 else devices}..{4 * devices}"
    return f"/scaling?{urlencode({name: text for name, text in typed.items() if text})}"


def _named_in(scenario: records.Scenario) -> list[_Named]:
    model, cluster = scenario.model, scenario.cluster
    return [
        _beside_the_catalog("model", model.name, model.id, lambda: model_id(named_model(model.name))),
        _beside_the_catalog("cluster", cluster.name, cluster.id, lambda: cluster_id(named_cluster(cluster.name))),
    ]


def _calibration_of(search: records.Search) -> _Named:
    name, stored = search.calibration, search.calibration_id
    return _beside_the_catalog("calibration", name, stored, lambda: calibration_id(named_calibration(name)))


def _beside_the_catalog(kind: str, name: str, stored: str, look_up: Callable[[], str]) -> _Named:
    try:
        found = look_up()
    except InvalidInput:
        return _Named(kind=kind, name=name, in_catalog=False, same=False)
    return _Named(kind=kind, name=name, in_catalog=True, same=found == stored)


def _is_current(scenario: records.Scenario) -> bool:
    try:
        return load_framework(scenario.framework).version == scenario.framework_version
    except InvalidInput:
        return False
