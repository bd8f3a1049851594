"""What a key's name says about a model, for keys that no reader understands; the words are in ``key_words.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

_NOTHING = ("", "none", "null", "default", "false")


def holds_something(value: Any) -> bool:
    """Whether a key's value says anything: not false, zero, -1, empty, or a word for none."""
    return bool(value) and value != -1 and not (isinstance(value, str) and value.strip().lower() in _NOTHING)


def of_structure(name: str) -> bool:
    """Whether a key of that name makes a model something else than a plain decoder, whatever else the file says."""
    return _speaks_of("structure", name)


def of_widths(name: str) -> bool:
    """Whether a key of that name may change widths or biases."""
    return _speaks_of("widths", name)


def is_harmless(name: str) -> bool:
    """Whether a key of that name changes no parameter."""
    return name.startswith("_") or any(part in name.lower() for part in words()["harmless"])


@cache
def words() -> Mapping[str, Any]:
    file = resources.files("costmodel.catalog") / "key_words.yaml"
    table: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return table


def _speaks_of(kind: str, name: str) -> bool:
    return not is_harmless(name) and any(part in name.lower() for part in words()[kind])
