"""Where the catalog's entries lie: the packaged folders, and before them the user's own.

An entry is a file called after its name. ``$PLANNER_CATALOG_DIR`` names a directory with the same folders as the
package (``clusters/``, ``models/``, ...); an entry there replaces a packaged one of the same name. Names ignore case.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from costmodel.catalog.documents import SUFFIXES
from costmodel.errors import UnreadableFile

CATALOG_DIR_VARIABLE = "PLANNER_CATALOG_DIR"

Kind = Literal["accelerator", "calibration", "cluster", "framework", "model"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file of the catalog.

    Attributes:
        name: the entry's, as its file spells it.
        packaged: whether it ships with the planner; else it is the user's own.
    """

    name: str
    file: Traversable
    packaged: bool


def names(kind: Kind) -> tuple[str, ...]:
    """Names of all entries of a kind, in alphabetical order whatever the case of their letters."""
    found = {**_packaged(kind), **_own(kind)}
    return tuple(found[lowered].name for lowered in sorted(found))


def find(kind: Kind, name: str, *, without: Container[str] = ()) -> Entry | None:
    """The entry of that name, the user's own first.

    Args:
        without: paths of files to pass over: a user's ``dgx-h100`` may extend the packaged one.
    """
    for entries in (_own(kind), _packaged(kind)):
        entry = entries.get(name.strip().lower())
        if entry is not None and str(entry.file) not in without:
            return entry
    return None


def user_dir() -> Path | None:
    """The directory that ``$PLANNER_CATALOG_DIR`` names. Caches of entries are keyed by it: names depend on it.

    Raises:
        UnreadableFile: there is no such directory.
    """
    value = os.environ.get(CATALOG_DIR_VARIABLE, "")
    if not value:
        return None
    directory = expanded(value, CATALOG_DIR_VARIABLE).absolute()
    if not directory.is_dir():
        expected = "a directory that holds accelerators/, clusters/, models/, ... is expected"
        raise UnreadableFile(CATALOG_DIR_VARIABLE, value, expected)
    return directory


def expanded(path: str, field: str) -> Path:
    """The path with its ``~`` replaced.

    Raises:
        UnreadableFile: ``~somebody`` of whom no home directory is known.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UnreadableFile(field, path, f"it can't be read: {error}") from None


def stem(file_name: str) -> str:
    """``p5.48xlarge.yaml`` is ``p5.48xlarge``."""
    return file_name.rpartition(".")[0]


# What ships with the planner stays as it is; a user's own folder is looked into every time.
@cache
def _packaged(kind: Kind) -> Mapping[str, Entry]:
    return _entries(resources.files("costmodel.catalog") / f"{kind}s", packaged=True)


def _own(kind: Kind) -> dict[str, Entry]:
    directory = user_dir()
    return _entries(directory / f"{kind}s", packaged=False) if directory else {}


def _entries(folder: Traversable, *, packaged: bool) -> dict[str, Entry]:
    """Entries of a folder by their names in lower case; an absent folder has none."""
    try:
        files = sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else []
    except OSError as error:
        raise UnreadableFile(CATALOG_DIR_VARIABLE, str(folder), f"it can't be read: {error.strerror}") from None
    found: dict[str, Entry] = {}
    for file in files:
        # Editors leave hidden copies beside a file.
        if file.name.lower().endswith(SUFFIXES) and not file.name.startswith("."):
            name = stem(file.name)
            found.setdefault(name.lower(), Entry(name=name, file=file, packaged=packaged))
    return found
