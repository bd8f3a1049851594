"""Accelerators by name, from the packaged data files or from a user's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from costmodel.catalog import folders
from costmodel.catalog.entries import read_entry
from costmodel.errors import UnknownName
from costmodel.spec.cluster import AcceleratorSpec
from costmodel.spec.validation import build


def accelerator_names() -> tuple[str, ...]:
    """Names of the accelerators in the catalog, in alphabetical order."""
    return folders.names("accelerator")


def load_accelerator(name: str) -> AcceleratorSpec:
    """The accelerator of that name or alias, without regard to case, blanks and punctuation.

    Raises:
        UnknownName: the catalog has no such accelerator.
        UnreadableFile, InvalidInput: its file is broken (a user's own, in practice).
    """
    return _accelerator(name.strip().lower(), folders.user_dir())


def compact(spelling: str) -> str:
    """Letters and digits only: what spellings of one name have in common."""
    return "".join(re.findall(r"[a-z0-9]+", spelling.lower()))


# Cached by the user's directory as well, since a name may mean something else there.
@lru_cache(maxsize=256)
def _accelerator(name: str, user_dir: Path | None) -> AcceleratorSpec:
    entry = folders.find("accelerator", name)
    if entry is not None:
        return build(AcceleratorSpec, read_entry("accelerator", entry.file), "accelerator")
    canonical = _spelled(user_dir).get(compact(name))
    if canonical is None:
        raise UnknownName("accelerator", name, accelerator_names())
    return _accelerator(canonical, user_dir)


# Only a name that no file has makes all the files be read.
@lru_cache(maxsize=8)
def _spelled(user_dir: Path | None) -> Mapping[str, str]:
    """Names and aliases, letters and digits only, to names in lower case; a name wins over an alias."""
    names = [name.lower() for name in accelerator_names()]
    aliases = {compact(alias): name for name in names for alias in _accelerator(name, user_dir).aliases}
    return {**aliases, **{compact(name): name for name in names}}
