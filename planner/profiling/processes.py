"""Processes of this machine by /proc: who started whom, who carries a mark in its environment, how they are ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MARK = "PLANNER_TRIAL"
"""The variable by which everything that a trial started is known."""

_PROC = Path("/proc")
_GRACE_S = 3.0
_LOOK_S = 0.05


def descendants(pid: int) -> set[int]:
    """All processes below one."""
    parents = _parents()
    found: set[int] = set()
    added = {pid}
    while added:
        added = {child for child, parent in parents.items() if parent in added} - found
        found |= added
    return found


def marked(mark: str) -> set[int]:
    """All processes, of those that we may look at, with ``PLANNER_TRIAL=mark`` in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found: set[int] = set()
    for pid in _pids():
        with suppress(OSError):
            if wanted in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.add(pid)
    return found - {os.getpid()}


def started_at(pid: int) -> str | None:
    """When a process started, in the kernel's ticks: with its id it names one process for ever. None if it is gone."""
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else fields[19]


def end(find: Callable[[], set[int]]) -> None:
    """End processes, kindly first, until none is found any more."""
    kindly_until = time.monotonic() + _GRACE_S
    for pid in find():
        _signal(pid, signal.SIGTERM)
    while alive := {pid for pid in find() if started_at(pid) is not None}:
        if time.monotonic() > kindly_until:
            for pid in alive:
                _signal(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()] if _PROC.is_dir() else []


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for pid in _pids():
        if (fields := _stat(pid)) is not None:
            found[pid] = int(fields[1])
    return found


def _stat(pid: int) -> list[str] | None:
    """The fields behind the name, which may hold anything."""
    try:
        return (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
