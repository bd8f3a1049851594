"""Nested settings under dotted names (``zero_optimization.stage``), as ``words.yaml`` and sheets name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
