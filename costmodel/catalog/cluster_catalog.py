"""Accelerators and clusters by name, from the packaged data files or from a user's own.

A user's file has the schema of the packaged ones. ``extends: dgx-h100`` starts from a catalog entry, so that only
what differs is written. A file is parsed when its name is asked for, since start-up has to stay light.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from costmodel.catalog import folders
from costmodel.catalog.documents import SUFFIXES, read_mapping
from costmodel.errors import InvalidInput, UnknownName, UnreadableFile
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec, TierSpec
from costmodel.spec.validation import build

Kind = Literal["accelerator", "cluster"]


def accelerator_names() -> tuple[str, ...]:
    """Names of the accelerators in the catalog, in alphabetical order."""
    return folders.names("accelerator")


def cluster_names() -> tuple[str, ...]:
    """Names of the clusters in the catalog, in alphabetical order."""
    return folders.names("cluster")


def load_accelerator(name: str) -> AcceleratorSpec:
    """The accelerator of that name or alias, whatever the case of its letters.

    Raises:
        UnknownName: the catalog has no such accelerator.
        UnreadableFile, InvalidInput: its file is broken (a user's own, in practice).
    """
    return _accelerator(name.strip().lower(), folders.user_dir())


def load_cluster(name_or_path: str) -> ClusterSpec:
    """The cluster of that name or alias, whatever the case of its letters; else the one in that YAML or JSON file.

    A name that no file has is compared without blanks and punctuation: "DGX H100" is ``dgx-h100``.

    Raises:
        UnknownName: it is neither in the catalog nor the path of a YAML or JSON file.
        UnreadableFile: the file is absent or broken.
        InvalidInput: a field of the file is wrong.
    """
    name = name_or_path.strip()
    if folders.find("cluster", name) is not None:
        return _cluster(name.lower(), folders.user_dir())
    if name.lower().endswith(SUFFIXES):
        return _build_cluster(_read("cluster", folders.expanded(name, "cluster"), opened=()), "cluster")
    spelled = _spelled_clusters(folders.user_dir()).get(_compact(name))
    if spelled is not None:
        return _cluster(spelled, folders.user_dir())
    if os.sep in name:
        raise UnreadableFile("cluster", name_or_path, f"a cluster file ends in {' or '.join(SUFFIXES)}")
    raise UnknownName("cluster", name_or_path, cluster_names(), hint="or the path of a YAML or JSON file")


def parse_cluster(data: Mapping[str, Any], where: str = "cluster") -> ClusterSpec:
    """The cluster that a mapping of the files' schema describes, a request's body say; errors start with ``where``."""
    if not isinstance(data, Mapping):
        raise InvalidInput(where, data, "a name, or a mapping of field to value, is expected")
    return _build_cluster(_extended("cluster", {"source": "given by the user", **data}, where, opened=()), where)


# Cached by the user's directory as well, since a name may mean something else there.
@lru_cache(maxsize=256)
def _accelerator(name: str, user_dir: Path | None) -> AcceleratorSpec:
    entry = folders.find("accelerator", name)
    if entry is not None:
        return build(AcceleratorSpec, _read("accelerator", entry.file, opened=()), "accelerator")
    canonical = _aliases(user_dir).get(name)
    if canonical is None:
        raise UnknownName("accelerator", name, accelerator_names())
    return _accelerator(canonical, user_dir)


@lru_cache(maxsize=256)
def _cluster(name: str, user_dir: Path | None) -> ClusterSpec:
    entry = folders.find("cluster", name)
    assert entry is not None, "load_cluster looks before it asks"
    return _build_cluster(_read("cluster", entry.file, opened=()), "cluster")


@lru_cache(maxsize=8)
def _aliases(user_dir: Path | None) -> Mapping[str, str]:
    """Alias to name, both in lower case. Only a name that no file has makes all the files be read."""
    names = [name.lower() for name in accelerator_names()]
    return {alias.lower(): name for name in names for alias in _accelerator(name, user_dir).aliases}


# Only a name that no file has makes all the files be read.
@lru_cache(maxsize=8)
def _spelled_clusters(user_dir: Path | None) -> Mapping[str, str]:
    """Names and aliases of clusters, letters and digits only, to names in lower case; a name wins over an alias."""
    spelled: dict[str, str] = {}
    for name in cluster_names():
        for alias in _cluster(name.lower(), user_dir).aliases:
            spelled[_compact(alias)] = name.lower()
    return {**spelled, **{_compact(name): name.lower() for name in cluster_names()}}


def _compact(name: str) -> str:
    return "".join(re.findall(r"[a-z0-9]+", name.lower()))


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
        mapping = _extended("accelerator", {"source": "given by the user", **accelerator}, inside, opened=())
        data["accelerator"] = build(AcceleratorSpec, mapping, inside)
    tiers = data.get("tiers")
    if isinstance(tiers, (list, tuple)):
        data["tiers"] = tuple(
            build(TierSpec, tier, f"{where}.tiers[{index}]") if isinstance(tier, Mapping) else tier
            for index, tier in enumerate(tiers)
        )
    return build(ClusterSpec, data, where)


def _read(kind: Kind, file: Traversable, opened: tuple[str, ...]) -> dict[str, Any]:
    """What a file says, over what it extends. Its name, unless given, is the file's."""
    data = read_mapping(file, kind)
    defaults = {"name": folders.stem(file.name), "source": "given by the user"}
    return _extended(kind, {**defaults, **data}, kind, (*opened, str(file)))


def _extended(kind: Kind, data: dict[str, Any], where: str, opened: tuple[str, ...]) -> dict[str, Any]:
    """``data`` over the catalog entry that its ``extends`` names. ``opened`` are the files that led here."""
    if "extends" not in data:
        return data
    own = {key: value for key, value in data.items() if key != "extends"}
    base_name = data["extends"]
    if not isinstance(base_name, str):
        raise InvalidInput(f"{where}.extends", base_name, f"the name of a catalog {kind} is expected")
    entry = folders.find(kind, base_name, without=opened)
    if entry is None and folders.find(kind, base_name) is not None:
        raise InvalidInput(f"{where}.extends", base_name, "it leads back to itself")
    if entry is None:
        raise UnknownName(f"{where}.extends", base_name, folders.names(kind))
    base = _read(kind, entry.file, opened)
    # An alias stands for one accelerator only, and a source for the numbers that it is the source of.
    base.pop("aliases", None)
    if own["source"] == "given by the user":
        own["source"] = f"{base_name} ({base['source']}), changed by the user"
    return {**base, **own}
