"""Keys of people's files that say nothing of a plan, or that no field holds: ``keys.yaml`` in a target's package.

old: {old.name: {name: new.name, value: what true of the old one is}}
ignored: [name, "block."]         # they say nothing of a plan
unread: {name: why}               # they bear on it, and no field of a plan holds them
source: where they were read
retrieved: "2026-11-30"
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from costmodel.catalog.documents import read_mapping
from costmodel.spec.base import Frozen, FrozenMap, FrozenMapping, IsoDate
from costmodel.spec.validation import build


class NewName(Frozen):
    """Today's name of a key, and what ``true`` of the old one is today, where that isn't ``true``."""

    name: str
    value: str | None = None


class KnownKeys(Frozen):
    """A name with a dot at the end stands for the block.

    Attributes:
        model: what the model's shape is read from, where that is no block of its own.
    """

    old: FrozenMapping[str, NewName] = FrozenMap({})
    model: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unread: FrozenMapping[str, str] = FrozenMap({})
    source: str
    retrieved: IsoDate

    def renamed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings under today's names; what has today's name as well keeps that value."""
        found = dict(settings)
        for old, new in self.old.items():
            given = found.pop(old, None)
            if given is None or (new.value is not None and given is False):
                continue
            found.setdefault(new.name, given if new.value is None else new.value)
        return found


@cache
def known_keys(package: str) -> KnownKeys:
    """Those of a target's package (``planner.export.deepspeed``)."""
    return build(KnownKeys, read_mapping(files(package) / "keys.yaml", "keys"), where="keys")
