"""What was used last, as much of it as there is room for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LastUsed(Generic[Key, Value]):
    """Values by key; beyond the room that there is, those that were not used for longest go. Safe for several threads.

    Args:
        most: what all values may weigh together.
        weigh: what one weighs; by default all weigh one.
    """

    def __init__(self, most: int, weigh: Callable[[Value], int] = lambda _: 1) -> None:
        self._most, self._weigh, self._lock = most, weigh, Lock()
        self._known: OrderedDict[Key, Value] = OrderedDict()
        self._weight = 0

    def find(self, key: Key) -> Value | None:
        """The value of a key; None when it is not kept."""
        with self._lock:
            return self._used(key) if key in self._known else None

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, in the place of an earlier one of the same key."""
        with self._lock:
            if key in self._known:
                self._weight -= self._weigh(self._known.pop(key))
            self._known[key] = value
            self._weight += self._weigh(value)
            while self._weight > self._most:
                self._weight -= self._weigh(self._known.popitem(last=False)[1])

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key, made where it is not there; two that ask at once both make it."""
        with self._lock:
            if key in self._known:
                return self._used(key)
        made = make()
        self.put(key, made)
        return made

    def _used(self, key: Key) -> Value:
        self._known.move_to_end(key)
        return self._known[key]
