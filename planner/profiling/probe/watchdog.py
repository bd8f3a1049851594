"""Ends this process when nothing has happened for too long: a collective that another rank never joins."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

_LOOK_S = 0.2


class Watchdog:
    """Calls ``bark`` and ends the process once ``seconds`` have passed since the last ``beat``.

    Process groups have timeouts of their own, but NCCL's kill the process without a word, and not all that hangs is a
    collective.
    """

    def __init__(self, seconds: float, bark: Callable[[], None], exit_code: int) -> None:
        self.seconds, self.bark, self.exit_code = seconds, bark, exit_code
        self.beat()
        threading.Thread(target=self._watch, daemon=True).start()

    def beat(self) -> None:
        """Something has happened."""
        self.last: float | None = time.monotonic()

    def rest(self) -> None:
        """Nothing is waited for any more."""
        self.last = None

    def _watch(self) -> None:
        while True:
            last = self.last
            if last is not None and time.monotonic() - last > self.seconds:
                self.bark()
                os._exit(self.exit_code)
            time.sleep(_LOOK_S)
