"""What rules ask, in a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

from costmodel.catalog.documents import read_mapping


def meaning_of(rule: str) -> str:
    """The sentence for a rule, or for what else the search counts meshes under; empty where there is none."""
    return _meanings().get(rule, "")


@lru_cache(maxsize=1)
def _meanings() -> Mapping[str, str]:
    return read_mapping(resources.files("planner") / "meanings.yaml", "meanings")
