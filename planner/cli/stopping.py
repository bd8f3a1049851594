"""Ctrl-C and SIGTERM for commands that put back what they hold before they go."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def told_to_stop(stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Calls ``stop`` when a signal comes, instead of dying; gives what says whether one came.

    Raises:
        KeyboardInterrupt: a second one came: whoever sends it doesn't want to wait for an orderly end.
    """
    came: list[int] = []

    def on_signal(number: int, _: Any) -> None:
        came.append(number)
        stop()
        if len(came) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
