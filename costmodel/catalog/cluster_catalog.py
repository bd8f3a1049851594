"""Accelerators and clusters by name, from the packaged data files or from a user's own.

A user's file has the schema of the packaged ones. `extends: dgx-h100` starts from a catalog entry, so that only what
differs is written; `$PLANNER_CATALOG_DIR` names a folder whose `accelerators/` and `clusters/` come before the
packaged ones. A file is parsed when its name is asked for, since start-up has to stay light.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from costmodel.catalog.documents import SUFFIXES, read_mapping
from costmodel.errors import InvalidInput, UnknownName, UnreadableFile
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec, TierSpec
from costmodel.spec.validation import build

CATALOG_DIR_VARIABLE = "PLANNER_CATALOG_DIR"

Kind = Literal["accelerator", "cluster"]


def accelerator_names() -> tuple[str, ...]:
    """Names of the accelerators in the catalog, in alphabetical order."""
    return _names("accelerator")


def cluster_names() -> tuple[str, ...]:
    """Names of the clusters in the catalog, in alphabetical order."""
    return _names("cluster")


def load_accelerator(name: str) -> AcceleratorSpec:
    """The accelerator of that name or alias, whatever the case of its letters.

    Raises:
        UnknownName: the catalog has no such accelerator.
        UnreadableFile, InvalidInput: its file is broken (a user's own, in practice).
    """
    return _accelerator(name.strip().lower(), _catalog_dir())


def load_cluster(name_or_path: str) -> ClusterSpec:
    """The cluster of that name, whatever the case of its letters; else the one in that YAML or JSON file.

    Raises:
        UnknownName: it is neither in the catalog nor the path of a YAML or JSON file.
        UnreadableFile: the file is absent or broken.
        InvalidInput: a field of the file is wrong.
    """
    name = name_or_path.strip()
    if _find("cluster", name, opened=()) is not None:
        return _cluster(name.lower(), _catalog_dir())
    if name.lower().endswith(SUFFIXES):
        return _build_cluster(_read("cluster", Path(name).expanduser(), opened=()), "cluster")
    if os.sep in name:
        raise UnreadableFile("cluster", name_or_path, f"a cluster file ends in {' or '.join(SUFFIXES)}")
    raise UnknownName("cluster", name_or_path, cluster_names(), hint="or the path of a YAML or JSON file")


def parse_cluster(data: Mapping[str, Any], where: str = "cluster") -> ClusterSpec:
    """The cluster that a mapping of the files' schema describes, a request's body say; errors start with `where`."""
    if not isinstance(data, Mapping):
        raise InvalidInput(where, data, "a name, or a mapping of field to value, is expected")
    return _build_cluster(_extended("cluster", {"source": "given by the user", **data}, where, opened=()), where)


# Cached by the catalog's folder as well, since a name may mean something else there.
@lru_cache(maxsize=256)
def _accelerator(name: str, catalog_dir: str) -> AcceleratorSpec:
    file = _find("accelerator", name, opened=())
    if file is not None:
        return build(AcceleratorSpec, _read("accelerator", file, opened=()), "accelerator")
    canonical = _aliases(catalog_dir).get(name)
    if canonical is None:
        raise UnknownName("accelerator", name, accelerator_names())
    return _accelerator(canonical, catalog_dir)


@lru_cache(maxsize=256)
def _cluster(name: str, catalog_dir: str) -> ClusterSpec:
    file = _find("cluster", name, opened=())
    assert file is not None, "load_cluster looks before it asks"
    return _build_cluster(_read("cluster", file, opened=()), "cluster")


@lru_cache(maxsize=8)
def _aliases(catalog_dir: str) -> dict[str, str]:
    """Alias to name, both in lower case. Only a name that no file has makes all the files be read."""
    names = [name.lower() for name in accelerator_names()]
    return {alias.lower(): name for name in names for alias in _accelerator(name, catalog_dir).aliases}


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
    defaults = {"name": _stem(file.name), "source": "given by the user"}
    return _extended(kind, {**defaults, **data}, kind, (*opened, str(file)))


def _extended(kind: Kind, data: dict[str, Any], where: str, opened: tuple[str, ...]) -> dict[str, Any]:
    """`data` over the catalog entry that its `extends` names. `opened` are the files that led here."""
    if "extends" not in data:
        return data
    own = {key: value for key, value in data.items() if key != "extends"}
    base_name = data["extends"]
    if not isinstance(base_name, str):
        raise InvalidInput(f"{where}.extends", base_name, f"the name of a catalog {kind} is expected")
    file = _find(kind, base_name, opened)
    if file is None and _find(kind, base_name, opened=()) is not None:
        raise InvalidInput(f"{where}.extends", base_name, "it leads back to itself")
    if file is None:
        raise UnknownName(f"{where}.extends", base_name, _names(kind))
    base = _read(kind, file, opened)
    # An alias stands for one accelerator only, and a source for the numbers that it is the source of.
    base.pop("aliases", None)
    if own["source"] == "given by the user":
        own["source"] = f"{base_name} ({base['source']}), changed by the user"
    return {**base, **own}


def _names(kind: Kind) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for folder in reversed(_folders(kind)):
        for lowered, file in _files(folder).items():
            found[lowered] = _stem(file.name)
    return tuple(found[lowered] for lowered in sorted(found))


def _find(kind: Kind, name: str, opened: tuple[str, ...]) -> Traversable | None:
    """The first file of that name that isn't open already: a user's `dgx-h100` may extend the packaged one."""
    for folder in _folders(kind):
        file = _files(folder).get(name.strip().lower())
        if file is not None and str(file) not in opened:
            return file
    return None


def _folders(kind: Kind) -> list[Traversable]:
    """Where entries of a kind are looked for, the user's own folder first."""
    folders: list[Traversable] = [resources.files("costmodel.catalog") / f"{kind}s"]
    own = _catalog_dir()
    if own:
        root = Path(own).expanduser()
        if not root.is_dir():
            expected = "a folder that holds accelerators/ or clusters/ is expected"
            raise UnreadableFile(CATALOG_DIR_VARIABLE, own, expected)
        folders.insert(0, root / f"{kind}s")
    return folders


def _files(folder: Traversable) -> dict[str, Traversable]:
    """Files of a folder by their name in lower case, without suffix."""
    if not folder.is_dir():
        return {}
    return {_stem(file.name).lower(): file for file in folder.iterdir() if file.name.lower().endswith(SUFFIXES)}


def _stem(file_name: str) -> str:
    """`p5.48xlarge.yaml` is `p5.48xlarge`."""
    return file_name.rpartition(".")[0]


def _catalog_dir() -> str:
    return os.environ.get(CATALOG_DIR_VARIABLE, "")
