"""One deadline over several searches."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

_LEAST_SECONDS = 0.01
"""A search that is started after all gets a moment: a deadline of 0 is none."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """When everything has to be over.

    Attributes:
        deadline: by ``time.monotonic``.
        stopped: once it is set, nothing new is started.
    """

    deadline: float
    stopped: threading.Event | None

    @classmethod
    def starting(cls, seconds: float, stopped: threading.Event | None) -> Clock:
        """A clock that starts now."""
        return cls(deadline=time.monotonic() + seconds, stopped=stopped)

    @property
    def late(self) -> bool:
        """Whether the time is up, or somebody does not want to wait any longer."""
        return time.monotonic() > self.deadline or (self.stopped is not None and self.stopped.is_set())

    def seconds(self, among: int = 1) -> float:
        """What is left for the next of so many searches that are still to come."""
        return max((self.deadline - time.monotonic()) / among, _LEAST_SECONDS)
