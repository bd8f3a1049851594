"""A pool of worker processes, warm before the first job comes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from planner.running.job import Job
from planner.running.process import WorkerProcess
from planner.search.solve import Progress


class Pool:
    """Any number of threads may run jobs; each has a worker of its own for as long as its job takes.

    Args:
        size: how many processes; all are started at once, and none is waited for.
        cancel_grace_s: so long after it was told to stop, a job that goes on is killed with its process.
        overrun_grace_s: the same for a job that goes on after its own deadline.
    """

    def __init__(self, size: int, cancel_grace_s: float = 2.0, overrun_grace_s: float = 30.0) -> None:
        self._workers = [WorkerProcess(cancel_grace_s, overrun_grace_s) for _ in range(size)]
        self._idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid for worker in self._workers]

    @property
    def ready(self) -> bool:
        """Whether some worker is known to have started."""
        return any(worker.ready for worker in self._workers)

    @contextmanager
    def worker(self) -> Iterator[WorkerProcess]:
        """A worker that is ready to search, for oneself; waits until one is idle.

        Raises:
            WorkersUnavailable: it does not start, or the pool is closed.
        """
        worker = self._idle.get()
        try:
            worker.ensure_ready()
            yield worker
        finally:
            self._idle.put(worker)

    def run(
        self,
        job: Job,
        *,
        max_seconds: float,
        progress: Progress = lambda step, figures: None,
        stopped: threading.Event | None = None,
    ) -> Any:
        """Run a job on the next idle worker; see ``WorkerProcess.run``."""
        with self.worker() as worker:
            return worker.run(job, max_seconds, progress, stopped or threading.Event())

    def close(self) -> None:
        """Kill all workers; jobs that run end with ``WorkersUnavailable``, as do those that come later."""
        for worker in self._workers:
            worker.retire()
