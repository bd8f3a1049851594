"""Jobs for tests of the processes that search: worker processes import them by name."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

from costmodel.errors import UnknownName
from planner.search.request import SearchRequest
from planner.search.solve import Progress
from tests.scenarios import scenario_of
from tests.searches import request_of


def long_request(max_seconds: float = 120.0) -> SearchRequest:
    """A search of six seconds on a quick machine: nearly all of them in the solver's enumeration."""
    return request_of(scenario_of("deepseek-v3", "dgx-h100", 2048, 8192, 4096), top=200, max_seconds=max_seconds)


@dataclass(frozen=True, kw_only=True)
class Echo:
    """Tells what it holds and returns it with the process that ran it."""

    value: Any

    def __call__(self, progress: Progress, stopped: threading.Event) -> dict[str, Any]:
        progress("echo", {"value": self.value})
        return {"value": self.value, "pid": os.getpid()}


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Tells that it has begun and waits to be stopped; a deaf one doesn't listen."""

    seconds: float = 60.0
    deaf: bool = False

    def __call__(self, progress: Progress, stopped: threading.Event) -> str:
        progress("begun", {"pid": os.getpid()})
        if self.deaf:
            time.sleep(self.seconds)
        return "stopped" if stopped.wait(self.seconds) else "waited"


class Die:
    """Is killed in the middle, as by the kernel when memory runs out."""

    def __call__(self, progress: Progress, stopped: threading.Event) -> None:
        progress("begun", {"pid": os.getpid()})
        os.kill(os.getpid(), signal.SIGKILL)


class Exit:
    """Ends the process by itself."""

    def __call__(self, progress: Progress, stopped: threading.Event) -> None:
        os._exit(3)


class Invalid:
    """Finds that what was asked is unusable."""

    def __call__(self, progress: Progress, stopped: threading.Event) -> None:
        raise UnknownName("model", "lama", ["llama", "mixtral"])


class Break:
    """Has a bug."""

    def __call__(self, progress: Progress, stopped: threading.Event) -> None:
        raise ZeroDivisionError("a bug")


class Unsendable:
    """Returns what can't be sent back."""

    def __call__(self, progress: Progress, stopped: threading.Event) -> Any:
        return threading.Lock()
