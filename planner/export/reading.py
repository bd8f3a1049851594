"""What was read from a framework's configuration: fields of a plan, and what is left over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from costmodel.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Read:
    """A configuration in our words.

    Attributes:
        plan: fields of ``PlanDraft`` that it states, by name; what it leaves open is not in it.
        meanings: field -> the words of the configuration that say so, for people.
        model: its shape, where the configuration has it.
        unread: words that bear on a plan and could not be read, each with the reason; a verdict may be wrong for them.
        ignored: words that say nothing of a plan (learning rate, paths), by name.
        notes: what was assumed, a sentence each.
        batch_per_replica: sequences of a step and data-parallel rank, where how many ranks there are isn't said.
        defaulted: fields that stand on the default of a shell variable, over which a flag of the question goes.
    """

    plan: Mapping[str, Any]
    meanings: Mapping[str, str] = field(default_factory=dict[str, str])
    model: ModelSpec | None = None
    unread: Mapping[str, str] = field(default_factory=dict[str, str])
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()
    batch_per_replica: int | None = None
