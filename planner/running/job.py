"""What a worker process is given to do."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Protocol

from planner.answering.whole_answer import whole_answer
from planner.search.request import SearchRequest
from planner.search.solve import Progress


class Job(Protocol):
    """Work that can be pickled. It tells its progress, ends soon after ``stopped`` is set, and returns plain values."""

    def __call__(self, progress: Progress, stopped: threading.Event, /) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class SearchJob:
    """One search; its result is the answer as ``suggest --json`` has it."""

    request: SearchRequest

    def __call__(self, progress: Progress, stopped: threading.Event, /) -> dict[str, Any]:
        return whole_answer(self.request, progress, stopped)
