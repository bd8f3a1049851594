"""A TOML file of settings by their dotted names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_WIDTH = 120


def toml_of(settings: Mapping[str, Any]) -> str:
    """The text: a table for every section, in the order in which they come first.

    Values are strings, numbers, booleans and lists of those; TOML has no null, so ``None`` is not among them.
    """
    sections: dict[str, list[str]] = {}
    for name, value in settings.items():
        section, _, key = name.rpartition(".")
        sections.setdefault(section, []).append(f"{key} = {_value(value)}")
    return "\n".join(f"[{section}]\n" + "".join(f"{line}\n" for line in lines) for section, lines in sections.items())


def _value(value: Any) -> str:
    if not isinstance(value, list | tuple):
        # A JSON string is a basic string of TOML, but for DEL, which JSON leaves as it is.
        return json.dumps(value).replace("\x7f", "\\u007F")
    inner = [_value(entry) for entry in value]
    if any(isinstance(entry, list | tuple) for entry in value):
        return "[\n" + "".join(f"    {entry},\n" for entry in inner) + "]"
    return f"[{', '.join(inner)}]"
