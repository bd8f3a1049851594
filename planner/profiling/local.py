"""Trials on this machine: each behind a guard of its own, which ends all of it when this process ends or freezes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from planner.profiling.processes import MARK, end, marked, started_at
from planner.profiling.runner import State, TrialJob

_BEAT_S = 1.0
GRACE_S = 15.0
"""A worker that gave no sign for so long counts as frozen; its trial is ended by the guard."""


class Guarded:
    """Starts commands behind guards. The handle is ``host:pid:start``."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._guards: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def start(self, trial: TrialJob, command: Sequence[str], environment: Mapping[str, str]) -> str:
        """Start a command for a trial; returns its handle.

        Raises:
            OSError: its files can't be written, or there is no process to be had.
        """
        trial.folder.mkdir(parents=True, exist_ok=True)
        trial.log.touch()
        argv = [sys.executable, "-m", "planner.profiling.guard", str(trial.folder), str(self._grace_s), "--", *command]
        guard = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment, MARK: trial.key},
            start_new_session=True,
        )
        handle = f"{socket.gethostname()}:{guard.pid}:{started_at(guard.pid)}"
        with self._lock:
            self._guards[handle] = guard
        threading.Thread(target=_beat, args=(guard,), daemon=True).start()
        return handle

    def state(self, handle: str, trial: TrialJob) -> State:
        """Running as long as the guard is; done once there is an exit code."""
        guard = self._guards.get(handle)
        if guard is not None:
            guard.poll()
        if trial.exit_code.exists():
            return "done"
        if _is_there(handle):
            return "running"
        # It may have ended between the two looks.
        if trial.exit_code.exists():
            return "done"
        return "abandoned" if (trial.folder / "abandoned").exists() else "gone"

    def stop(self, handle: str, trial: TrialJob) -> None:
        """Close the guard's stdin, which makes it end everything; then look for what is left all the same."""
        guard = self._guards.pop(handle, None)
        if guard is not None:
            with suppress(OSError):
                assert guard.stdin is not None
                guard.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                guard.wait(self._grace_s)
        if handle.partition(":")[0] != socket.gethostname():
            # Of another machine: its guard ends it, since nobody gives it a sign.
            return
        end(lambda: marked(trial.key))


class OnThisMachine:
    """What the runners share that start commands here: one trial at a time, which never outlives its worker."""

    at_once = 1
    outlives_worker = False

    def __init__(self) -> None:
        self._guarded = Guarded()

    def find(self, trial: TrialJob) -> str | None:
        """Nothing outlives its worker."""
        return None

    def state(self, handle: str, trial: TrialJob) -> State:
        return self._guarded.state(handle, trial)

    def stop(self, handle: str, trial: TrialJob) -> None:
        self._guarded.stop(handle, trial)


def _beat(guard: subprocess.Popen[bytes]) -> None:
    """Give the guard a sign now and then, for as long as it is there."""
    assert guard.stdin is not None
    with suppress(OSError, ValueError):
        while guard.poll() is None:
            guard.stdin.write(b".")
            guard.stdin.flush()
            with suppress(subprocess.TimeoutExpired):
                guard.wait(_BEAT_S)


def _is_there(handle: str) -> bool:
    host, pid, start = handle.split(":")
    return host == socket.gethostname() and started_at(int(pid)) == start
