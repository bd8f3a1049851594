"""The worker's side: a process that searches, one job after the other, for as long as its parent lives.

Messages are tuples that begin with a word. From the parent: ``("run", pickled job)``, and ``("cancel",)`` for the last
one. To the parent: ``("ready", seconds)`` once, then per job any number of ``("progress", step, figures)`` and one of
``("result", result)``, ``("stopped",)``, ``("failed", problem, traceback)``.

A thread of its own reads, so that a cancel is heard, and the parent's death noticed, in the middle of a search.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from costmodel.errors import PlannerError
from planner.running.errors import failure, problem_of

_NICENESS = 5


def main(descriptor: int) -> None:
    """Serve the parent at the other end of a socket until that end is closed."""
    started = time.monotonic()
    # Ctrl-C, and a service manager that stops the whole group, mean the parent: it decides what becomes of a search.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.stderr is not None:
        faulthandler.enable()
    # Who asks for what is stored comes before who waits for a search.
    os.nice(_NICENESS)
    worker = _Worker(Connection(descriptor))
    # From here on the process ends with its parent, also while it is still importing.
    threading.Thread(target=worker.read, name="reads the parent", daemon=True).start()
    _warm_up()
    worker.send("ready", time.monotonic() - started)
    worker.work()


def _warm_up() -> None:
    """Import what every search needs: a second that nobody should wait for."""
    import ortools.sat.python.cp_model  # noqa: F401

    import planner.running.job  # noqa: F401


class _Worker:
    """The connection to the parent, and the jobs that came over it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.jobs: queue.SimpleQueue[tuple[bytes, threading.Event]] = queue.SimpleQueue()

    def read(self) -> None:
        """Hand jobs to the working thread and tell it of cancels; end the process when the parent is gone."""
        stopped = threading.Event()
        try:
            while True:
                word, *rest = self.connection.recv()
                if word == "run":
                    stopped = threading.Event()
                    self.jobs.put((rest[0], stopped))
                else:
                    stopped.set()
        except (EOFError, OSError):
            os._exit(0)

    def send(self, *message: Any) -> None:
        """Tell the parent; without one there is nothing left to do."""
        try:
            self.connection.send(message)
        except OSError:
            os._exit(0)

    def work(self) -> None:
        """Run jobs for ever."""
        while True:
            payload, stopped = self.jobs.get()
            self.send(*self._outcome(payload, stopped))

    def _outcome(self, payload: bytes, stopped: threading.Event) -> tuple[Any, ...]:
        def progress(step: str, figures: dict[str, Any]) -> None:
            self.send("progress", step, figures)

        try:
            result = pickle.loads(payload)(progress, stopped)
            # Tried before it is sent: what can't be sent is a bug of the job, not the end of its worker.
            pickle.dumps(result)
        except PlannerError as error:
            return ("failed", problem_of(error), "")
        except Exception as error:
            problem = failure("unexpected-error", f"an unexpected error, {type(error).__name__}: {error}")
            return ("failed", problem, traceback.format_exc())
        # A result that was cut short must not pass for the answer.
        return ("stopped",) if stopped.is_set() else ("result", result)
