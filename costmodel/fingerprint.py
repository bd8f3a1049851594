"""Ids that say what a thing is: digests of content, so that the same content has the same id everywhere and for ever.

What only explains (sources, dates of retrieval, other spellings) is not content: the same config.json read from two
folders is the same model. Names are, since people filter by them; so are a model's notes, which say what was left out
of it and are told with every answer. On which devices a calibration's runs were is told beside its prices, too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import cache, lru_cache
from hashlib import sha256
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from typing import Any

from pydantic import BaseModel

from costmodel.calibration.calibration import Calibration
from costmodel.scenario import Scenario
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import Plan

_DIGITS = 32
_SHORT_DIGITS = 8
_DISTRIBUTION = "parallelism-planner"
_EXPLAINS = frozenset(
    {"aliases", "caveat", "memory_note", "price_note", "ran_on", "retrieved", "rule_sources", "source"}
)
# What these find out is in the scenario (models, clusters and runs as they were read), or is no price: a change of
# theirs leaves every answer as it is.
_PRICE_NOTHING = frozenset({"catalog", "checker", "fidelity", "runs", "spec/families", "spec/native"})
# The one part of the catalog that no scenario holds and that prices rest on: published sweeps of collectives.
_PRICING_DATA = "catalog/collectives"


def digest(content: Any) -> str:
    """32 hex digits of the SHA-256 of content that JSON can hold; the order of keys does not matter.

    Raises:
        ValueError: content holds a NaN or an infinity.
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return sha256(text.encode("ascii")).hexdigest()[:_DIGITS]


def model_id(model: ModelSpec) -> str:
    """Id of a model: its name and its shape."""
    return _digest_of(_Same(model))


def cluster_id(cluster: ClusterSpec) -> str:
    """Id of a cluster: its name, accelerator, tiers and price."""
    return _digest_of(_Same(cluster))


def calibration_id(calibration: Calibration) -> str:
    """Id of a calibration: its name and every value with its standard error and what it applies to."""
    return _digest_of(_Same(calibration))


def scenario_id(scenario: Scenario) -> str:
    """Id of a scenario: everything that is given, but for the calibration that it is priced under."""
    return _digest_of(_Same(scenario), without="calibration")


def plan_id(scenario: str, plan: Plan, calibration: str, version: str) -> str:
    """The address of a plan.

    Args:
        scenario: ``scenario_id``.
        calibration: ``calibration_id``.
        version: ``cost_model_version``.
    """
    return plan_document_id(scenario, plan.model_dump(mode="json"), calibration, version)


def plan_document_id(scenario: str, plan: dict[str, Any], calibration: str, version: str) -> str:
    """The address of a plan in the form in which it is stored; see ``plan_id``."""
    return digest({"scenario": scenario, "plan": plan, "calibration": calibration, "cost_model": version})


def plan_id_in(scenario: Scenario, plan: dict[str, Any]) -> str:
    """The address of a stored plan as a plan of a scenario, priced by its calibration and today's cost model."""
    return plan_document_id(scenario_id(scenario), plan, calibration_id(scenario.calibration), cost_model_version())


@cache
def cost_model_version() -> str:
    """The release, and a digest of the cost model's own sources: no formula or sweep changes without a new version."""
    sources = digest_of_sources("costmodel", without=_PRICE_NOTHING, data=_PRICING_DATA)
    return f"{metadata.version(_DISTRIBUTION)}+{sources}"


def digest_of_sources(package: str, *, without: Collection[str] = (), data: str | None = None) -> str:
    """8 hex digits of the SHA-256 over the names and texts of a package's Python files, subpackages included.

    Args:
        without: subpackages to leave out, with slashes.
        data: a folder of CSV files to take in, left out or not.
    """
    summed = sha256()
    for name, file in sorted(_sources(resources.files(package), "")):
        is_data = name.endswith(".csv")
        if is_data and not (data and name.startswith(f"{data}/")):
            continue
        if not is_data and any(name.startswith(f"{part}/") for part in without):
            continue
        text = file.read_bytes().replace(b"\r\n", b"\n")
        summed.update(f"{name}\0{len(text)}\0".encode())
        summed.update(text)
    return summed.hexdigest()[:_SHORT_DIGITS]


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{path}{entry.name}/")
        elif entry.name.endswith((".py", ".csv")):
            yield f"{path}{entry.name}", entry


class _Same:
    """One object, whatever others are equal to it."""

    def __init__(self, value: BaseModel) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


# Kept by object: what is digested never changes, a server is asked about the same catalog entries and calibration all
# day long, and to compare two of them takes as long as to digest one.
@lru_cache(maxsize=256)
def _digest_of(given: _Same, without: str | None = None) -> str:
    content = given.value.model_dump(mode="json", exclude={without} if without else None)
    return digest(_without_explanations(content))


def _without_explanations(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_explanations(part) for key, part in value.items() if key not in _EXPLAINS}
    if isinstance(value, list):
        return [_without_explanations(part) for part in value]
    return value
