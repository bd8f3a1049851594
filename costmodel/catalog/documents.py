"""Reads one YAML or JSON file that has to hold a mapping, and says in one line where it is broken when it is."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from costmodel.errors import UnreadableFile

SUFFIXES = (".yaml", ".yml", ".json")

# A document is a few kilobytes; a path to a checkpoint's weights shouldn't be read into memory.
MAX_BYTES = 16 * 2**20

# The C parser is about ten times faster, but PyYAML can be built without it.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# What aliases may add to a document by being repeated; a short text can stand for billions of values.
_MOST_REPEATED = 100_000
_DEEPEST = 200
_MOST_BITS = 4096
_MERGE_TAG = "tag:yaml.org,2002:merge"


class _Broken(Exception):
    """The text isn't in its format; the message says where and why."""


class _Loader(_SafeLoader):  # type: ignore[misc]
    """The safe loader, except that a key written twice is an error: of two values, the last would win silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE_TAG or not isinstance(key_node, yaml.ScalarNode):
                continue
            key = self.construct_object(key_node)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", key_node.start_mark)
            seen.add(key)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def read_mapping(file: Traversable, field: str) -> dict[str, Any]:
    """The mapping that a file holds.

    Args:
        file: a ``pathlib.Path``, or a file of a package.
        field: what the user calls the file (``cluster``), for the error.

    Raises:
        UnreadableFile: the file is absent, unreadable or too large, isn't YAML or JSON, gives a key twice, or holds
            something else than a mapping.
    """
    return mapping_of(read_text(file, field), is_json=file.name.lower().endswith(".json"), shown=str(file), field=field)


def mapping_of(text: str, *, is_json: bool, shown: str, field: str) -> dict[str, Any]:
    """The mapping that a document's text holds.

    Args:
        shown: where the text comes from, for the error.

    Raises:
        UnreadableFile: it isn't YAML or JSON, gives a key twice, or holds something else than a mapping.
    """
    try:
        data = _parse(text, is_json=is_json)
        check_extent(data, len(text))
    except _Broken as error:
        raise UnreadableFile(field, shown, str(error)) from None
    except RecursionError:
        raise UnreadableFile(field, shown, "it is nested too deeply") from None
    except ValueError as error:  # a date such as 2026-13-01, a number of too many digits
        raise UnreadableFile(field, shown, f"it holds an unusable value: {_one_line(error)}") from None
    if not isinstance(data, dict):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise UnreadableFile(field, shown, f"a mapping of field to value is expected at the top, not {found}")
    for key in data:
        if not isinstance(key, str):
            raise UnreadableFile(field, shown, f"field names are text, not {key!r}")
    return data


def yaml_of(text: str) -> Any:
    """Any value in YAML.

    Raises:
        ValueError: it isn't YAML, or has what plain code can't walk or print.
    """
    try:
        data = _parse(text, is_json=False)
        check_extent(data, len(text))
    except _Broken as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return data


def check_extent(data: Any, length: int) -> None:
    """Whether plain code can walk and print parsed values.

    Args:
        length: characters of the text that they are from.

    Raises:
        ValueError: they hold themselves, are nested too deeply, are too many, or have a number of too many digits.
    """
    left = length + _MOST_REPEATED
    level: list[Any] = [data]
    for _ in range(_DEEPEST):
        left -= len(level)
        if left < 0:
            raise ValueError("aliases repeat parts of it too often")
        if any(isinstance(value, int) and value.bit_length() > _MOST_BITS for value in level):
            raise ValueError("a number has too many digits")
        inner: list[Any] = []
        for value in level:
            if isinstance(value, Mapping):
                inner += value
                inner += value.values()
            elif isinstance(value, list | tuple | set):
                inner += value
            if len(inner) > left:
                break
        if not inner:
            return
        level = inner
    raise ValueError("it is nested too deeply, or holds itself")


def read_text(file: Traversable, field: str) -> str:
    """The text of a file.

    Raises:
        UnreadableFile: the file is absent, unreadable, too large, or no UTF-8 text.
    """
    try:
        return _bytes(file).decode("utf-8-sig")
    except FileNotFoundError:
        raise UnreadableFile(field, str(file), "there is no such file") from None
    except OSError as error:
        raise UnreadableFile(field, str(file), f"it can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UnreadableFile(field, str(file), f"UTF-8 text is expected (byte {error.start} isn't)") from None
    except _Broken as error:
        raise UnreadableFile(field, str(file), str(error)) from None
    except ValueError as error:  # a path with a NUL
        raise UnreadableFile(field, str(file), f"it can't be opened: {_one_line(error)}") from None


def _bytes(file: Traversable) -> bytes:
    with file.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise _Broken(f"it is larger than {MAX_BYTES // 2**20} MiB, too large for a description")
    return content


def _parse(text: str, *, is_json: bool) -> Any:
    """The parsed text. NaN and Infinity pass: configs in the wild have them in keys that no one here reads."""
    try:
        if is_json:
            return json.loads(text, object_pairs_hook=_without_duplicates)
        return yaml.load(text, Loader=_Loader)
    except json.JSONDecodeError as error:
        raise _Broken(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _Broken(place + _one_line(error.problem or error)) from None
    except yaml.YAMLError as error:
        raise _Broken(f"it isn't YAML: {_one_line(error)}") from None
    except (
        AttributeError,
        LookupError,
        TypeError,
    ) as error:  # PyYAML's own, of !!bool before another word
        raise _Broken(f"a tag doesn't fit its value: {_one_line(error)}") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise _Broken(f"{key!r} is given twice")
        mapping[key] = value
    return mapping


def _one_line(message: object) -> str:
    return " ".join(str(message).split())
