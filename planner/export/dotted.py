"""Nested settings under dotted names (``zero_optimization.stage``), as ``words.yaml`` and sheets name them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from costmodel.catalog.documents import yaml_of
from costmodel.errors import InvalidInput

_SHOWN = 60


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``, in the same order."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        *outer, last = name.split(".")
        inner = found
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


def dotted(data: Mapping[Any, Any], under: str = "") -> dict[str, Any]:
    """The other way round; an empty mapping is a value, and so is a list."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{under}{key}"
        if isinstance(value, Mapping) and value:
            found |= dotted(value, f"{name}.")
        else:
            found[name] = value
    return found


def sections_of(text: str, sections: Collection[str]) -> dict[str, Any] | None:
    """A YAML document that has one of the sections; None where it is no such document.

    Raises:
        InvalidInput: it is one, and can't be taken as it is.
    """
    begins = re.search(rf"^(?:{'|'.join(sections)}):", text, re.M) or text.lstrip().startswith("{")
    try:
        document = yaml_of(text)
    except ValueError as error:
        if begins:
            raise InvalidInput("from", text.strip()[:_SHOWN], str(error)) from None
        return None
    if isinstance(document, dict) and any(isinstance(document.get(part), dict) for part in sections):
        return document
    return None


def value_of(text: str) -> Any:
    """The value of an override, as YAML has it; else the text itself."""
    try:
        return yaml_of(text)
    except ValueError:
        return text
