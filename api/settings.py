"""How a server is set up: read once from the environment, where ``planner serve`` puts its flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.errors import InvalidInput
from planner.slots import MOST_SLOTS, default_slots

_KEYS_VARIABLE = "PLANNER_SERVE_KEYS"
_SLOTS_VARIABLE = "PLANNER_SLOTS"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits and switches of one server.

    Attributes:
        database_url: None for the default place.
        needs_keys: whether every request to the API and the pages needs an API key. Only ``planner serve``, which
            knows that it listens on loopback alone, may switch this off.
        slots: searches that run at once, each in a process of its own.
        most_waiting: searches that may wait for a slot.
        most_seconds: longest deadline that a request may give a search.
        most_body_bytes: largest request body.
        longest_wait_s: longest ``Prefer: wait``.
    """

    database_url: str | None = None
    needs_keys: bool = True
    slots: int = 1
    most_waiting: int = 200
    most_seconds: float = 300.0
    most_body_bytes: int = 1_000_000
    longest_wait_s: float = 60.0

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """What ``planner serve`` was told, or whoever starts the application by other means.

        Raises:
            InvalidInput: a variable holds something unusable.
        """
        found = os.environ if environment is None else environment
        return cls(
            database_url=found.get("PLANNER_DATABASE_URL") or None,
            needs_keys=found.get(_KEYS_VARIABLE, "required") != "none",
            slots=_slots(found.get(_SLOTS_VARIABLE)),
        )


def _slots(text: str | None) -> int:
    if text is None:
        return default_slots()
    if not text.isdecimal() or not 1 <= int(text) <= MOST_SLOTS:
        raise InvalidInput(_SLOTS_VARIABLE, text, f"a whole number in 1..{MOST_SLOTS} is expected")
    return int(text)
