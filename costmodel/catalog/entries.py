"""Files of the catalog as mappings: a file over what it ``extends``, for accelerators and clusters."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources.abc import Traversable
from typing import Any, Literal

from costmodel.catalog import folders
from costmodel.catalog.documents import read_mapping
from costmodel.errors import InvalidInput, UnknownName

Kind = Literal["accelerator", "cluster"]

GIVEN = {"source": "given by the user"}


def read_entry(kind: Kind, file: Traversable, opened: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a file says, over what it extends. Its name, unless given, is the file's. ``opened`` led here."""
    data = read_mapping(file, kind)
    return extended(kind, {"name": folders.stem(file.name), **GIVEN, **data}, kind, (*opened, str(file)))


def extended(kind: Kind, data: Mapping[str, Any], where: str, opened: tuple[str, ...] = ()) -> dict[str, Any]:
    """``data`` over the catalog entry that its ``extends`` names. ``opened`` are the files that led here."""
    if "extends" not in data:
        return dict(data)
    own = {key: value for key, value in data.items() if key != "extends"}
    base_name = data["extends"]
    if not isinstance(base_name, str):
        raise InvalidInput(f"{where}.extends", base_name, f"the name of a catalog {kind} is expected")
    entry = folders.find(kind, base_name, without=opened)
    if entry is None and folders.find(kind, base_name) is not None:
        raise InvalidInput(f"{where}.extends", base_name, "it leads back to itself")
    if entry is None:
        raise UnknownName(f"{where}.extends", base_name, folders.names(kind))
    base = read_entry(kind, entry.file, opened)
    # An alias stands for one accelerator only, and a source for the numbers that it is the source of.
    base.pop("aliases", None)
    if own["source"] == GIVEN["source"]:
        own["source"] = f"{base_name} ({base['source']}), changed by the user"
    return {**base, **own}
