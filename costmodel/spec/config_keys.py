"""Typed reading of a model file's keys, so that importers never see a wrong type and never guess.

A reading that fails is remembered and answered with a stand-in, so that one error can name everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from costmodel.errors import InvalidInput

_STAND_IN = 1
_MOST = 10**15


class ConfigKeys:
    """A config whose every reading is a checked one: a wrong type becomes a problem that names the key.

    Several names for one key are spellings of it in different versions; the first one that holds something counts,
    and others have to agree with it.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
        *,
        noted: bool = True,
        prefix: str = "",
    ) -> None:
        """``defaults`` stand for absent keys that the file's own convention leaves out.

        Args:
            noted: whether defaults that were taken are worth a note.
            prefix: the block that holds the keys, for messages.
        """
        self._noted = noted
        self._config = config
        self._prefix = prefix
        self._defaults = defaults or {}
        self._problems: dict[str, InvalidInput] = {}
        self._defaulted: dict[str, Any] = {}
        self._notes: list[str] = []
        self.missing: list[str] = []
        self.read: set[str] = set()

    def size(self, *names: str, default: int | None = None) -> int:
        """A whole number of at least 1. Only an absent key takes the default; null is an error."""
        name = self._present(names)
        if name is None:
            return self._absent(names, default)
        value = self._whole(name, at_least=1)
        for other in names:
            given = self._config.get(other)
            if other != name and given is not None and given != self._config[name]:
                self.problem(other, given, f"it contradicts {name} {self._config[name]!r}: they are one thing")
        return value

    def size_or_none(self, *names: str, default: int | None = None) -> int | None:
        """A whole number of at least 1; None if it is null, the default if it is absent."""
        name = self._present(names)
        if name is None:
            if names[0] in self._defaults:
                return self._absent(names, None)
            self._took(names[0], default)
            return default
        return None if self._config[name] is None else self._whole(name, at_least=1)

    def count(self, *names: str, default: int = 0) -> int:
        """A whole number of at least 0; the default if it is absent or null."""
        name = self._present(names)
        if name is None or self._config[name] is None:
            self._took(names[0], default)
            return default
        return self._whole(name, at_least=0)

    def flag(self, name: str, default: bool = False) -> bool:
        self.read.add(name)
        value = self._config.get(name, default)
        if isinstance(value, bool):
            if default and self._defaults and name not in self._config:
                self._defaulted[name] = str(default).lower()
            return value
        self.problem(name, value, f"true or false is expected{_hint(value)}")
        return default

    def items(self, name: str) -> list[Any] | None:
        self.read.add(name)
        value = self._config.get(name)
        if value is not None and not isinstance(value, list):
            self.problem(name, value, f"a list is expected{_hint(value)}")
            return None
        return value

    def text(self, name: str) -> str | None:
        self.read.add(name)
        value = self._config.get(name)
        if value is not None and not isinstance(value, str):
            self.problem(name, value, "text is expected")
            return None
        return value

    def part(self, name: str) -> ConfigKeys:
        """A nested block; its problems are this config's. An absent or null one is empty."""
        self.read.add(name)
        value = self._config.get(name)
        if value is not None and not isinstance(value, Mapping):
            self.problem(name, value, "an object of keys and values is expected")
            value = None
        nested = ConfigKeys(value or {}, prefix=f"{name}.")
        nested._problems, nested._notes, nested.missing = self._problems, self._notes, self.missing
        nested._defaulted = self._defaulted
        return nested

    def has(self, name: str) -> bool:
        """Whether the key is there and holds something."""
        self.read.add(name)
        return self._config.get(name) is not None

    def sound(self, *names: str) -> bool:
        """Whether the size under these names was read without a problem, so that others can be held against it."""
        name = self._present(names)
        return name is not None and _is_whole(self._config[name]) and self._config[name] >= 1

    def raw(self, name: str) -> Any:
        """The value as it stands in the file, for a message."""
        return self._config.get(name)

    def require(self, name: str, allowed: int | bool, why: str) -> None:
        """Refuses a key that is present with anything but the one value that ModelSpec can express."""
        self.read.add(name)
        value = self._config.get(name)
        if value is not None and (value != allowed or type(value) is not type(allowed)):
            self.problem(name, value, f"only {str(allowed).lower()} is supported: {why}")

    def problem(self, name: str, value: Any, expected: str) -> None:
        known_as = self._prefix + name
        self._problems.setdefault(known_as, InvalidInput(known_as, value, expected))

    def note(self, text: str) -> None:
        self._notes.append(text)

    def check(self, names: tuple[str, ...], others: tuple[str, ...], rule: Relation, expected: str) -> None:
        """A rule between two whole numbers, where both are there and no problem of theirs is known yet."""
        name, other = self._first_of(names), self._first_of(others)  # to compare keys is not to understand them
        if name is None or other is None or self._is_wrong(name) or self._is_wrong(other):
            return
        value, bound = self._config[name], self._config[other]
        if _is_whole(value) and _is_whole(bound) and value > 0 and bound > 0 and not rule(int(value), int(bound)):
            self.problem(name, value, expected.format(bound))

    @property
    def problems(self) -> tuple[InvalidInput, ...]:
        """Everything that is wrong, in the order of reading."""
        return tuple(self._problems.values())

    @property
    def notes(self) -> tuple[str, ...]:
        filled = ", ".join(f"{name} {value}" for name, value in self._defaulted.items()) if self._noted else ""
        said = [f"absent from the file, filled from its class's defaults: {filled}"] if filled else []
        return tuple(dict.fromkeys([*said, *self._notes]))

    @property
    def unread(self) -> tuple[str, ...]:
        """Keys that nothing has looked at."""
        return tuple(sorted(str(name) for name in self._config if name not in self.read))

    def _is_wrong(self, name: str) -> bool:
        return self._prefix + name in self._problems

    def _absent(self, names: tuple[str, ...], default: int | None) -> int:
        if default is not None:
            self._took(names[0], default)
            return default
        for name in names:
            if name in self._defaults:
                self._defaulted[name] = self._defaults[name]
                return int(self._defaults[name])
        if self._prefix + names[0] not in self.missing:
            self.missing.append(self._prefix + names[0])
        self.problem(names[0], None, f"a whole number of at least 1 is required{self._misspelt(names[0])}")
        return _STAND_IN

    def _took(self, name: str, default: int | None) -> None:
        """A default of 1 is the usual case, such as experts in every layer."""
        if default is not None and default > 1:
            self._defaulted[self._prefix + name] = default

    def _present(self, names: tuple[str, ...]) -> str | None:
        """The first name that holds something, else the first that is there at all."""
        self.read.update(names)
        return self._first_of(names)

    def _first_of(self, names: tuple[str, ...]) -> str | None:
        present = [name for name in names if name in self._config]
        return next((name for name in present if self._config[name] is not None), next(iter(present), None))

    def _whole(self, name: str, at_least: int) -> int:
        value = self._config[name]
        if _is_whole(value) and at_least <= value <= _MOST:
            return int(value)
        wrong = f"a whole number of at least {at_least} is expected"
        if _is_whole(value) and value > _MOST:
            wrong = f"a whole number of at most {_MOST} is expected"
        self.problem(name, value, wrong + _hint(value))
        return max(at_least, _STAND_IN)

    def _misspelt(self, name: str) -> str:
        """Points at a key that differs in case, blanks or hyphens only; a nearer guess would often be another key."""
        alike = [key for key in self._config if key != name and _letters(key) == _letters(name)]
        self.read.update(alike)
        return "".join(f" (there is a key {key!r})" for key in alike)


Relation = Callable[[int, int], bool]


def is_placeholder(value: Any) -> bool:
    """Whether a template's mark stands where a value belongs: ``${HIDDEN}``, ``<hidden size>``, ``{{ hidden }}``."""
    if not isinstance(value, str):
        return False
    text = value.strip()
    return "${" in text or text.startswith("$") or "{{" in text or (text.startswith("<") and text.endswith(">"))


def _hint(value: Any) -> str:
    if is_placeholder(value):
        return "; it is a placeholder, put the value in its place"
    if isinstance(value, str) and value.strip().isdigit():
        return ", without quotes"
    if isinstance(value, list):
        return ": layers that differ one by one can't be planned"
    return ""


def _is_whole(value: Any) -> bool:
    """4096 and 4096.0; a bool is an int to Python, not to the author of a config."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())


def _letters(key: object) -> str:
    return "".join(character for character in str(key).lower() if character.isalnum())
