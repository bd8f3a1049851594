"""What a reader has understood so far of a file of settings under dotted names."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec
from planner.export.numbers import MOST, factor, whole_number
from planner.export.reading import Read

_UNKNOWN = "no setting of this name is known here"


class Notebook:
    """The settings that are still to be looked at, and what those that were looked at say.

    Every method that returns a setting takes it off the list; null is as good as absent.

    Attributes:
        plan: fields of the plan so far.
    """

    def __init__(self, settings: Mapping[str, Any], where: str) -> None:
        self._left = {name: value for name, value in settings.items() if value is not None}
        self._where = where
        self.plan: dict[str, Any] = {}
        self._meanings: dict[str, str] = {}
        self._unread: dict[str, str] = {}
        self._ignored: list[str] = []
        self._notes: list[str] = []

    def items(self) -> ItemsView[str, Any]:
        return self._left.items()

    def says(self, field: str, value: Any, meaning: str) -> None:
        """A field of the plan, and the words that say so."""
        self.plan[field] = value
        self._meanings[field] = meaning

    def note(self, sentence: str) -> None:
        self._notes.append(sentence)

    def unread(self, name: str, why: str) -> None:
        """A setting that bears on the plan and that no field holds."""
        self._unread[name] = why

    def pop(self, name: str) -> Any:
        """A setting as it stands; None where there is none."""
        return self._left.pop(name, None)

    def drop(self, name: str) -> None:
        self._left.pop(name, None)

    def drop_all(self, prefix: str, but: tuple[str, ...] = (), *, read: bool = False) -> bool:
        """Settings that say nothing beside the others of their block; whether there were any.

        Args:
            read: they were read as a whole elsewhere, as a model's shape is.
        """
        found = [name for name in self._left if (name == prefix[:-1] or name.startswith(prefix)) and name not in but]
        for name in found:
            self._left.pop(name)
            if name not in self._unread and not read:
                self._ignored.append(name)
        return bool(found)

    def number(self, name: str) -> int | None:
        """A whole number, also as 5e8 or in quotes.

        Raises:
            InvalidInput: it is something else.
        """
        value = self.pop(name)
        if value is None:
            return None
        found = whole_number(value)
        if found is None:
            raise InvalidInput(f"{self._where}: {name}", value, f"a whole number of at most {MOST} is expected")
        return found

    def factor(self, name: str) -> float | None:
        """A number of at least 0, whole or not.

        Raises:
            InvalidInput: it is something else.
        """
        value = self.pop(name)
        found = factor(value)
        if value is not None and found is None:
            raise InvalidInput(f"{self._where}: {name}", value, f"a number from 0 to {MOST} is expected")
        return found

    def count(self, name: str, field: str) -> int | None:
        """A number from 1 on that is a field of the plan as it stands.

        Raises:
            InvalidInput: it is something else.
        """
        value = self.number(name)
        if value is None:
            return None
        if value < 1:
            raise InvalidInput(f"{self._where}: {name}", value, "at least 1 is expected")
        self.says(field, value, f"{name} {value}")
        return value

    def switch(self, name: str) -> bool | None:
        """True or false.

        Raises:
            InvalidInput: it is something else.
        """
        value = self.pop(name)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if value is not None and not isinstance(value, bool):
            raise InvalidInput(f"{self._where}: {name}", value, "true or false is expected")
        return value

    def word(self, name: str) -> str | None:
        """A text.

        Raises:
            InvalidInput: it is something else.
        """
        value = self.pop(name)
        if value is not None and not isinstance(value, str):
            raise InvalidInput(f"{self._where}: {name}", value, "text is expected")
        return value

    def leave(self, ignored: Iterable[str], unread: Mapping[str, str]) -> None:
        """Settings that are left: those that say nothing of a plan, and those that do and are not read.

        Args:
            ignored, unread: names, or beginnings of names with a dot at the end.
        """
        for name in list(self._left):
            value = self._left.pop(name)
            if _among(name, ignored) is not None:
                self._ignored.append(name)
            elif (listed := _among(name, unread)) is not None:
                if value is not False:
                    self.unread(name, unread[listed])
            else:
                self.unread(name, _UNKNOWN)

    def found(self, model: ModelSpec | None = None) -> Read:
        return Read(
            plan=self.plan,
            meanings=self._meanings,
            model=model,
            unread=self._unread,
            ignored=tuple(self._ignored),
            notes=tuple(self._notes),
        )


def _among(name: str, listed: Iterable[str]) -> str | None:
    return next(
        (one for one in listed if name == one.removesuffix(".") or (one[-1] == "." and name.startswith(one))), None
    )
