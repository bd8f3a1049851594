"""Clusters by name, from the packaged data files or from a user's own.

A user's file has the schema of the packaged ones. ``extends: dgx-h100`` starts from a catalog entry, so that only
what differs is written. A file is parsed when its name is asked for, since start-up has to stay light.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from costmodel.catalog import folders
from costmodel.catalog.accelerator_catalog import accelerator_names, compact, load_accelerator
from costmodel.catalog.documents import SUFFIXES
from costmodel.catalog.entries import GIVEN, extended, read_entry
from costmodel.catalog.spellings import named_accelerators
from costmodel.errors import InvalidInput, UnknownName, UnreadableFile
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec, TierSpec
from costmodel.spec.collective import MeasuredCollective
from costmodel.spec.validation import build

__all__ = ["accelerator_names", "cluster_names", "load_accelerator", "load_cluster", "named_cluster", "parse_cluster"]

_OR_A_FILE = "or the path of a YAML or JSON file"


def cluster_names() -> tuple[str, ...]:
    """Names of the clusters in the catalog, in alphabetical order."""
    return folders.names("cluster")


def load_cluster(name_or_path: str) -> ClusterSpec:
    """The cluster of that name or alias, whatever the case of its letters; else the one in that YAML or JSON file.

    A name that no file has is compared without blanks and punctuation: "DGX H100" is ``dgx-h100``.

    Raises:
        UnknownName: it is neither in the catalog nor the path of a YAML or JSON file.
        UnreadableFile: the file is absent or broken.
        InvalidInput: a field of the file is wrong.
    """
    name = name_or_path.strip()
    if name.lower().endswith(SUFFIXES) and folders.find("cluster", name) is None:
        return _build_cluster(read_entry("cluster", folders.expanded(name, "cluster")), "cluster")
    known = _in_catalog(name)
    if known is not None:
        return known
    if os.sep in name:
        raise UnreadableFile("cluster", name_or_path, f"a cluster file ends in {' or '.join(SUFFIXES)}")
    raise _unknown(name_or_path, _OR_A_FILE)


def named_cluster(name: str) -> ClusterSpec:
    """The same for catalog names only. Never opens a file that the name points at, so a request may choose it.

    Raises:
        UnknownName: it is not in the catalog.
    """
    known = _in_catalog(name.strip())
    if known is None:
        raise _unknown(name, "")
    return known


def _in_catalog(name: str) -> ClusterSpec | None:
    if folders.find("cluster", name) is not None:
        return _cluster(name.lower(), folders.user_dir())
    spelled = _spelled_clusters(folders.user_dir()).get(compact(name))
    return None if spelled is None else _cluster(spelled, folders.user_dir())


def parse_cluster(data: Mapping[str, Any], where: str = "cluster") -> ClusterSpec:
    """The cluster that a mapping of the files' schema describes, a request's body say; errors start with ``where``."""
    if not isinstance(data, Mapping):
        raise InvalidInput(where, data, "a name, or a mapping of field to value, is expected")
    return _build_cluster(extended("cluster", {**GIVEN, **data}, where), where)


# Cached by the user's directory as well, since a name may mean something else there.
@lru_cache(maxsize=256)
def _cluster(name: str, user_dir: Path | None) -> ClusterSpec:
    entry = folders.find("cluster", name)
    assert entry is not None, "load_cluster looks before it asks"
    return _build_cluster(read_entry("cluster", entry.file), "cluster")


# Only a name that no file has makes all the files be read.
@lru_cache(maxsize=8)
def _spelled_clusters(user_dir: Path | None) -> Mapping[str, str]:
    """Names and aliases of clusters, letters and digits only, to names in lower case; a name wins over an alias."""
    spelled: dict[str, str] = {}
    for name in cluster_names():
        for alias in _cluster(name.lower(), user_dir).aliases:
            spelled[compact(alias)] = name.lower()
    return {**spelled, **{compact(name): name.lower() for name in cluster_names()}}


def _unknown(text: str, hint: str) -> UnknownName:
    """What is right instead: for a device, the clusters that have it; for the start of a name, those that begin so."""
    user_dir, letters = folders.user_dir(), compact(text)
    begun = {name for spelling, name in _spelled_clusters(user_dir).items() if letters and spelling.startswith(letters)}
    named = named_accelerators(text)
    if begun and not (named and named.outright):
        because = f"{text.strip()} is the beginning of"
        return UnknownName("cluster", text, _as_spelled(begun), hint=hint, because=because)
    if named is None:
        return UnknownName("cluster", text, cluster_names(), hint=hint)
    having = [
        name for name in cluster_names() if _cluster(name.lower(), user_dir).accelerator.name in named.accelerators
    ]
    is_one = f"{named.name} is an accelerator" if named.outright else f"it speaks of the accelerator {named.name}"
    if having:
        return UnknownName("cluster", text, having, hint=hint, because=f"{is_one}: clusters with it are")
    typical = list(dict.fromkeys(load_accelerator(name).typical_cluster for name in named.accelerators))
    because = f"{is_one}: no cluster has it, a file may put it into one (extends, accelerator) such as"
    return UnknownName("cluster", text, typical, because=because)


def _as_spelled(lowered: set[str]) -> list[str]:
    return [name for name in cluster_names() if name.lower() in lowered]


def _build_cluster(data: dict[str, Any], where: str) -> ClusterSpec:
    """Builds the parts before the whole, so that an error in a part names the part's own fields."""
    data = dict(data)
    accelerator = data.get("accelerator")
    if isinstance(accelerator, str):
        try:
            data["accelerator"] = load_accelerator(accelerator)
        except UnknownName:
            raise UnknownName(f"{where}.accelerator", accelerator, accelerator_names()) from None
    elif isinstance(accelerator, Mapping):
        inside = f"{where}.accelerator"
        mapping = extended("accelerator", {**GIVEN, **accelerator}, inside)
        data["accelerator"] = build(AcceleratorSpec, mapping, inside)
    tiers = data.get("tiers")
    if isinstance(tiers, (list, tuple)):
        data["tiers"] = tuple(
            build(TierSpec, tier, f"{where}.tiers[{index}]") if isinstance(tier, Mapping) else tier
            for index, tier in enumerate(tiers)
        )
    measured = data.get("collectives")
    if isinstance(measured, (list, tuple)):
        data["collectives"] = tuple(
            build(MeasuredCollective, sweep, f"{where}.collectives[{index}]") if isinstance(sweep, Mapping) else sweep
            for index, sweep in enumerate(measured)
        )
    return build(ClusterSpec, data, where)
