"""Models by name or by file: what ``--model`` and the API's ``model`` accept.

What is no name in the catalog is a path, to any of the files that ``model_files`` reads.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from costmodel.catalog import folders
from costmodel.catalog.documents import SUFFIXES, read_mapping
from costmodel.catalog.model_files import FIELD as _FIELD
from costmodel.catalog.model_files import model_of, read_model
from costmodel.errors import UnknownName, UnreadableFile
from costmodel.spec.model import ModelSpec


def model_names() -> tuple[str, ...]:
    """Names of the models in the catalog, in alphabetical order."""
    return folders.names("model")


def load_model(name_or_path: str) -> ModelSpec:
    """The model of that catalog name (in any case), else of that file or of the config.json in that directory.

    Raises:
        UnknownName: it is neither in the catalog nor a path.
        UnreadableFile: the file is absent or broken.
        InvalidInput: a key of the file is wrong.
    """
    known = _in_catalog(name_or_path)
    if known is not None:
        return known
    path = _existing(name_or_path)
    if path is None:
        raise UnknownName(_FIELD, name_or_path, model_names(), hint="a path to a config.json works too")
    return read_model(path, _name_of(path))


def named_model(name: str) -> ModelSpec:
    """The model of that catalog name. Never opens a file that the name points at, so a request may choose it.

    Raises:
        UnknownName: it is not in the catalog.
    """
    known = _in_catalog(name)
    if known is None:
        raise UnknownName(_FIELD, name, model_names())
    return known


def parse_model(data: Mapping[str, Any], name: str = "") -> ModelSpec:
    """The model that a request's object describes: a config.json, a framework's own keys, or ModelSpec's fields.

    Args:
        name: what to call it; by default what the object calls itself.

    Raises:
        InvalidInput: a key is missing or wrong, or the object describes something else.
    """
    own = (data.get(key) for key in ("name", "_name_or_path", "model_type"))
    called = name or next((text for text in own if isinstance(text, str) and text), "unnamed-model")
    return model_of(data, called, "given in the request")


def _in_catalog(name: str) -> ModelSpec | None:
    return None if folders.find("model", name) is None else _model(name.strip().lower(), folders.user_dir())


# Cached by the user's directory as well, since a name may mean something else there.
@lru_cache(maxsize=256)
def _model(name: str, user_dir: Path | None) -> ModelSpec:
    entry = folders.find("model", name)
    assert entry is not None, "_in_catalog looks before it asks"
    source = _packaged_sources().get(entry.name, "") if entry.packaged else str(entry.file)
    return model_of(read_mapping(entry.file, _FIELD), entry.name, source)


def _packaged_sources() -> dict[str, str]:
    table = resources.files("costmodel.catalog") / "models" / "SOURCES.csv"
    rows = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
    return {row["model"]: row["source"] for row in rows}


def _name_of(path: Path) -> str:
    """A config.json is called after its directory, as in a checkpoint; any other file after itself."""
    directory = path.resolve().parent.name
    return directory if path.name == "config.json" and directory else path.stem


def _existing(name_or_path: str) -> Path | None:
    """The file meant by a path, or None for what reads like a misspelt name."""
    if not name_or_path.strip():
        return None
    suffixed = name_or_path.lower().endswith(SUFFIXES)
    looks_like_path = suffixed or os.sep in name_or_path or name_or_path.startswith((".", "~"))
    try:
        path = folders.expanded(name_or_path, _FIELD)
        is_directory = path.is_dir()
        file = path / "config.json" if is_directory else path
        if file.is_file():
            return file
        exists = path.exists()
    except OSError as error:
        raise UnreadableFile(_FIELD, name_or_path, f"it can't be read: {error.strerror or error}") from None
    # A directory that happens to be called like a misspelt model is no reason to talk about files.
    if not looks_like_path and (is_directory or not exists):
        return None
    if is_directory:
        raise UnreadableFile(_FIELD, name_or_path, "the directory has no config.json")
    expected = "a regular file is expected" if exists else "no such file; a catalog name or a file's path is expected"
    raise UnreadableFile(_FIELD, name_or_path, expected)
