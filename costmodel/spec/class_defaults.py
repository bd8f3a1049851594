"""Sizes that a configuration class of transformers, or a training framework, fills in where a file leaves them out."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def _table(file_name: str) -> dict[str, Any]:
    file = resources.files("costmodel.catalog") / file_name
    table: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return table


def class_defaults(model_type: str) -> dict[str, Any]:
    """Key -> default of that model_type's class; empty where none are kept."""
    defaults: dict[str, Any] = _table("class_defaults.yaml")["model_types"].get(model_type, {})
    return defaults


def framework_defaults(framework: str) -> dict[str, int]:
    """Key -> default of that framework."""
    sizes: dict[str, int] = _table("framework_defaults.yaml")[framework]["sizes"]
    return sizes
