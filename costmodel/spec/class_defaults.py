"""Sizes that transformers' configuration classes fill in, for files that leave them out on purpose."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def _table() -> dict[str, dict[str, Any]]:
    file = resources.files("costmodel.catalog") / "class_defaults.yaml"
    table: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))["model_types"]
    return table


def class_defaults(model_type: str) -> dict[str, Any]:
    """Key -> default of that model_type's class; empty where none are kept."""
    return _table().get(model_type, {})
