"""What ``planner serve`` and ``planner worker`` both ask of their options."""

from __future__ import annotations

from costmodel.errors import InvalidInput
from planner.slots import MOST_SLOTS

_LEVELS = ("debug", "info", "warning", "error")


def check_service_options(slots: int | None, log_level: str) -> None:
    """Accept a number of slots, None being the usual one, and a level of logs.

    Raises:
        InvalidInput: one of them is unusable.
    """
    if log_level not in _LEVELS:
        raise InvalidInput("log-level", log_level, f"one of {', '.join(_LEVELS)} is expected")
    if slots is not None and not 1 <= slots <= MOST_SLOTS:
        raise InvalidInput("slots", slots, f"it must lie in 1..{MOST_SLOTS}")
