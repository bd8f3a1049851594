"""One worker process, as its parent sees it: started, given jobs, stopped, and replaced when it is lost.

A fresh interpreter, as multiprocessing's start method *spawn* has it, and never a fork: a forked worker would keep the
listening socket of a service that was killed. It is a subprocess of its own making, since multiprocessing would run our
main module again in it, whatever that is (the console script, pytest, uvicorn), and keep a resource tracker beside it.
The one descriptor that a worker inherits is its end of a socket pair: when the parent is gone, by whatever death, the
worker reads the end of it and exits.
"""

from __future__ import annotations

import json
import logging
import pickle
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from planner.running.errors import JobFailed, JobStopped, WorkersUnavailable, failure
from planner.running.job import Job
from planner.search.solve import Progress

_log = logging.getLogger("planner.running")

# Our own path, and nothing before it: what may be imported is decided here, not by the folder the worker starts in.
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from planner.running.worker import main; main(int(sys.argv[1]))"
)
_LOOK_EVERY_S = 0.05
_START_WITHIN_S = 120.0


class _Gone(Exception):
    """The process at the other end has died."""


class WorkerProcess:
    """A process that runs one job at a time, for one thread at a time; only ``retire`` may come from another.

    Args:
        cancel_grace_s: how long a job may go on after it was told to stop.
        overrun_grace_s: how long it may go on after its own deadline.
    """

    def __init__(self, cancel_grace_s: float, overrun_grace_s: float) -> None:
        self._cancel_grace_s, self._overrun_grace_s = cancel_grace_s, overrun_grace_s
        self._changing = threading.Lock()
        self._retired = False
        self._process, self._connection = _started()
        self.ready = False

    @property
    def pid(self) -> int:
        """Id of the present process."""
        return self._process.pid

    def retire(self) -> None:
        """Kill the process, which has nothing to save, for good; whoever waits for its job is told."""
        with self._changing:
            self._retired = True
            self._process.kill()
            self._process.wait()

    def ensure_ready(self) -> None:
        """Wait until the process, or one in its place, is ready to search.

        Raises:
            WorkersUnavailable: none starts, or this one was retired.
        """
        if self._process.poll() is not None:
            self._replace()
        if self.ready:
            return
        try:
            message = self._hear(_START_WITHIN_S)
        except _Gone:
            raise WorkersUnavailable(f"a worker process did not start: {_said(self._process.wait())}") from None
        if message is None:
            self._process.kill()
            raise WorkersUnavailable(f"a worker process was not ready within {_START_WITHIN_S:g} s")
        self.ready = True
        _log.info("worker %d is ready", self.pid, extra={"pid": self.pid, "seconds": round(message[1], 3)})

    def run(self, job: Job, max_seconds: float, progress: Progress, stopped: threading.Event) -> Any:
        """Run a job and return its result.

        Args:
            max_seconds: the job's own deadline; when it goes on for long after that, its process is killed.
            progress: is called from this thread.
            stopped: is relayed to the job once it is set; a job that does not end soon after is killed.

        Raises:
            JobFailed: it raised an error, ran far too long, or its process died.
            JobStopped: it was stopped.
            WorkersUnavailable: no process starts, or this one was retired.
        """
        payload = pickle.dumps(job)
        self.ensure_ready()
        done = False
        try:
            self._tell("run", payload)
            word, *rest = self._ending(time.monotonic() + max_seconds, progress, stopped)
            done = True
        except _Gone:
            raise self._lost() from None
        finally:
            if not done:
                self._replace_early()
        if word == "failed":
            raise JobFailed(*rest)
        if word == "stopped":
            raise JobStopped("the job was stopped")
        return rest[0]

    def _ending(self, deadline: float, progress: Progress, stopped: threading.Event) -> tuple[Any, ...]:
        """The last message of a job."""
        overrun, patience = deadline + self._overrun_grace_s, float("inf")
        while True:
            message = self._hear(_LOOK_EVERY_S)
            if message is not None and message[0] != "progress":
                return message
            if message is not None:
                progress(*message[1:])
            now = time.monotonic()
            if stopped.is_set() and patience == float("inf"):
                self._tell("cancel")
                patience = now + self._cancel_grace_s
            if now > patience:
                _log.warning("worker %d does not stop and is replaced", self.pid, extra={"pid": self.pid})
                raise JobStopped("the job was stopped by force")
            if now > overrun:
                _log.error("worker %d overran and is replaced", self.pid, extra={"pid": self.pid})
                detail = f"the search was still running {self._overrun_grace_s:g} s after its deadline and was ended"
                raise JobFailed(failure("search-overran", detail))

    def _tell(self, *message: Any) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise _Gone from None

    def _hear(self, seconds: float) -> tuple[Any, ...] | None:
        """The next message; None when there is none so soon."""
        try:
            if not self._connection.poll(seconds):
                return None
            message: tuple[Any, ...] = self._connection.recv()
        except (EOFError, OSError):
            raise _Gone from None
        return message

    def _lost(self) -> JobFailed | WorkersUnavailable:
        """What to say of a job whose process has died."""
        self._process.kill()
        code = self._process.wait()
        if self._retired:
            return WorkersUnavailable("the pool of workers is closed")
        reason = f"the process of the search ended with {_said(code)}"
        _log.error("worker %d is lost: %s", self.pid, reason, extra={"pid": self.pid})
        killed = "; it was killed, as the system does when memory runs out" if code == -9 else ""
        return JobFailed(failure("worker-lost", f"{reason}{killed}"))

    def _replace_early(self) -> None:
        """Replace the process now, so that the next job finds a warm one; if that fails, the next job tries again."""
        if self._retired:
            return
        try:
            self._replace()
        except WorkersUnavailable as error:
            _log.warning("worker %d is not replaced yet: %s", self.pid, error, extra={"pid": self.pid})

    def _replace(self) -> None:
        """Put a new process in the place of this one, which is dead or has to die."""
        with self._changing:
            self._process.kill()
            self._process.wait()
            self._connection.close()
            self.ready = False
            if self._retired:
                raise WorkersUnavailable("the pool of workers is closed")
            self._process, self._connection = _started()


def _started() -> tuple[subprocess.Popen[bytes], Connection]:
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # what a terminal sends to our group is for this process to answer
            )
        except OSError as error:
            ours.close()
            raise WorkersUnavailable(f"a worker process can't be started: {error}") from error
    return process, Connection(ours.detach())


def _said(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
