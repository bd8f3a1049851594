"""Models by name or by file: what `--model` and the API's `model` accept.

A name is a file of `catalog/models`, packaged or the user's own in `$PLANNER_CATALOG_DIR/models`; a user's file wins
over a packaged one of the same name. Everything else is a path. Each file holds a Hugging Face config or
ModelSpec's own fields, as JSON or YAML.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import Any

import yaml

from costmodel.errors import InvalidInput, UnknownName, UnreadableFile
from costmodel.spec.huggingface import model_from_config
from costmodel.spec.model import ModelSpec
from costmodel.spec.validation import build

CATALOG_DIR_VARIABLE = "PLANNER_CATALOG_DIR"
_FIELD = "model"
_YAML = (".yaml", ".yml")
_SUFFIXES = (".json", *_YAML)
# A config is a few kilobytes; a path to a checkpoint's weights shouldn't be read into memory first.
_MAX_BYTES = 16 * 2**20


def model_names(user_dir: Path | None = None) -> tuple[str, ...]:
    """Names that `load_model` knows, sorted. `user_dir` stands for `$PLANNER_CATALOG_DIR`."""
    users = _user_models(user_dir)
    # Names are the same in any case, so a user's Llama-3-8B replaces llama-3-8b.
    replaced = {name.lower() for name in users}
    return tuple(sorted([*users, *(name for name in _packaged_models() if name.lower() not in replaced)]))


def load_model(name_or_path: str, user_dir: Path | None = None) -> ModelSpec:
    """The model of that catalog name (in any case), else of that file or of the config.json in that directory."""
    wanted = name_or_path.lower()
    for name, file in _user_models(user_dir).items():
        if name.lower() == wanted:
            return _from_data(_read(file), name, str(file))
    for name, resource in _packaged_models().items():
        if name.lower() == wanted:
            return _from_data(_read(resource), name, _packaged_sources().get(name, ""))
    path = _existing(name_or_path)
    if path is None:
        raise UnknownName(_FIELD, name_or_path, model_names(user_dir), hint="a path to a config.json works too")
    return _from_data(_read(path), _name_of(path), str(path))


def _packaged() -> Traversable:
    return files("costmodel.catalog") / "models"


def _packaged_models() -> dict[str, Traversable]:
    return {PurePath(file.name).stem: file for file in _packaged().iterdir() if file.name.endswith(_SUFFIXES)}


def _packaged_sources() -> dict[str, str]:
    rows = csv.DictReader((_packaged() / "SOURCES.csv").read_text(encoding="utf-8").splitlines())
    return {row["model"]: row["source"] for row in rows}


def _user_models(user_dir: Path | None) -> dict[str, Path]:
    if user_dir is None:
        variable = os.environ.get(CATALOG_DIR_VARIABLE, "")
        if not variable:
            return {}
        user_dir = Path(variable)
    folder = user_dir / "models"
    try:
        found = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise UnreadableFile(CATALOG_DIR_VARIABLE, str(folder), f"it can't be read: {error.strerror}") from None
    # Editors leave hidden copies beside a file.
    return {file.stem: file for file in found if file.suffix in _SUFFIXES and not file.name.startswith(".")}


def _name_of(path: Path) -> str:
    """A config.json is called after its directory, as in a checkpoint; any other file after itself."""
    directory = path.resolve().parent.name
    return directory if path.name == "config.json" and directory else path.stem


def _existing(name_or_path: str) -> Path | None:
    """The file meant by a path, or None for what reads like a misspelt name."""
    if not name_or_path.strip():
        return None
    suffixed = name_or_path.lower().endswith(_SUFFIXES)
    looks_like_path = suffixed or os.sep in name_or_path or name_or_path.startswith((".", "~"))
    try:
        path = Path(name_or_path).expanduser()
        is_directory = path.is_dir()
        file = path / "config.json" if is_directory else path
        if file.is_file():
            return file
        exists = path.exists()
    except (OSError, RuntimeError) as error:
        why = " ".join(str(error).split())  # RuntimeError: the home directory of a ~name that doesn't exist
        raise UnreadableFile(_FIELD, name_or_path, f"it can't be read: {why}") from None
    # A directory that happens to be called like a misspelt model is no reason to talk about files.
    if not looks_like_path and (is_directory or not exists):
        return None
    if is_directory:
        raise UnreadableFile(_FIELD, name_or_path, "the directory has no config.json")
    expected = "a regular file is expected" if exists else "no such file; a catalog name or a file's path is expected"
    raise UnreadableFile(_FIELD, name_or_path, expected)


def _read(file: Traversable) -> Mapping[Any, Any]:
    shown = str(file)
    try:
        if isinstance(file, Path) and file.stat().st_size > _MAX_BYTES:
            raise UnreadableFile(_FIELD, shown, "it is too large to be a config")
        # Editors on Windows put a byte order mark first.
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UnreadableFile(_FIELD, shown, f"it can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UnreadableFile(_FIELD, shown, f"UTF-8 text is expected, byte {error.start} is not") from None
    data = _parsed(text, shown, is_yaml=file.name.lower().endswith(_YAML))
    if not isinstance(data, Mapping):
        raise UnreadableFile(_FIELD, shown, f"an object of keys and values is expected, not a {type(data).__name__}")
    return data


def _parsed(text: str, shown: str, *, is_yaml: bool) -> object:
    """The parsed text. NaN and Infinity pass: configs in the wild have them in keys that no one here reads."""
    kind = "YAML" if is_yaml else "JSON"
    try:
        return yaml.safe_load(text) if is_yaml else json.loads(text)
    except json.JSONDecodeError as error:
        why = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        why = f"{error.problem or error.context}{where}"
    except (yaml.YAMLError, ValueError) as error:
        # Characters that YAML forbids, impossible dates, integers too long for Python to read.
        why = " ".join(str(error).split())
    except RecursionError:
        why = "it is nested too deeply"
    raise UnreadableFile(_FIELD, shown, f"it is no {kind}: {why}")


def _from_data(data: Mapping[Any, Any], name: str, source: str) -> ModelSpec:
    if "num_layers" in data and "model_type" not in data:
        return build(ModelSpec, {"name": name, "source": source, **data}, where="")
    if "model_type" not in data and "num_hidden_layers" not in data:
        expected = "a Hugging Face config (model_type, ...) or ModelSpec's fields (num_layers, ...) are expected"
        raise InvalidInput(_FIELD, source, expected)
    return model_from_config(data, name).model_copy(update={"source": source})
