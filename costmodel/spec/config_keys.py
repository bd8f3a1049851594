"""Typed reading of a config.json's keys, so that importers never see a wrong type and never guess."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput


class ConfigKeys:
    """A config whose every reading is a checked one: a wrong type is an InvalidInput that names the key.

    Several names for one key are spellings of it in different versions; the first one that holds something counts.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def size(self, *names: str, default: int | None = None) -> int:
        """A whole number of at least 1. Only an absent key takes the default; null is an error."""
        name = self._present(names)
        if name is None:
            if default is not None:
                return default
            raise InvalidInput(names[0], None, f"a whole number of at least 1 is required{self._misspelt(names[0])}")
        return self._whole(name, at_least=1)

    def size_or_none(self, *names: str, default: int | None = None) -> int | None:
        """A whole number of at least 1; None if it is null, the default if it is absent."""
        name = self._present(names)
        if name is None:
            return default
        return None if self._config[name] is None else self._whole(name, at_least=1)

    def count(self, name: str, default: int = 0) -> int:
        """A whole number of at least 0; the default if it is absent or null."""
        return default if self._config.get(name) is None else self._whole(name, at_least=0)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._config.get(name, default)
        if not isinstance(value, bool):
            raise InvalidInput(name, value, "true or false is expected")
        return value

    def items(self, name: str) -> list[Any] | None:
        value = self._config.get(name)
        if value is not None and not isinstance(value, list):
            raise InvalidInput(name, value, "a list is expected")
        return value

    def require(self, name: str, allowed: int | bool, why: str) -> None:
        """Refuses a key that is present with anything but the one value that ModelSpec can express."""
        value = self._config.get(name)
        if value is not None and (value != allowed or type(value) is not type(allowed)):
            raise InvalidInput(name, value, f"only {str(allowed).lower()} is supported: {why}")

    def _present(self, names: tuple[str, ...]) -> str | None:
        """The first name that holds something, else the first that is there at all."""
        present = [name for name in names if name in self._config]
        return next((name for name in present if self._config[name] is not None), next(iter(present), None))

    def _whole(self, name: str, at_least: int) -> int:
        value = self._config[name]
        # A bool is an int to Python, not to the author of a config.
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise InvalidInput(name, value, f"a whole number of at least {at_least} is expected")
        return value

    def _misspelt(self, name: str) -> str:
        """Points at a key that differs in case, blanks or hyphens only; a nearer guess would often be another key."""
        alike = (key for key in self._config if _letters(key) == _letters(name))
        return "".join(f" (there is a key {key!r})" for key in alike)


def _letters(key: object) -> str:
    return "".join(character for character in str(key).lower() if character.isalnum())
