"""What a configuration sets, in the names of Megatron-Core, and what has been made of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.export.numbers import whole_number


@dataclass(kw_only=True)
class Settings:
    """What a configuration sets, and what was made of it so far.

    Attributes:
        values: setting -> value: whole numbers, factors, words, truth values or lists of them.
        shown: setting -> the words of the configuration that say it, for people.
        read: settings that somebody looked at.
        unknown: settings that are given with a value that nobody can tell; nothing is said of what follows from them.
    """

    values: Mapping[str, Any]
    shown: Mapping[str, str]
    plan: dict[str, Any] = field(default_factory=dict)
    meanings: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        value = self.values.get(name)
        return default if value is None else value

    def on(self, name: str) -> bool:
        return self.get(name) is True

    def number(self, name: str, default: int | None = None) -> int | None:
        """A whole number of at least 0; what is none is told as unread."""
        value = self.get(name)
        if value is None:
            return default
        found = whole_number(value) if isinstance(value, int) else None
        if found is not None and found >= 0:
            return found
        self.fail(name, "a whole number is expected")
        return default

    def say(self, field_name: str, value: Any, *names: str, after: Collection[str] | None = None) -> None:
        """A field of the plan and the settings that say so; without any of them it is what silence means.

        Args:
            after: settings that it follows from, where those aren't ``names``; one unknown, and it isn't said.
        """
        if self.unknown & set(names if after is None else after):
            return
        self.plan[field_name] = value
        shown = [self.shown[name] for name in names if name in self.shown]
        if shown:
            self.meanings[field_name] = " ".join(shown)

    def fail(self, name: str, why: str) -> None:
        self.unread[self.shown.get(name, name)] = why
