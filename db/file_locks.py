"""Locks on files beside an SQLite database. The kernel releases them when their process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOK_AGAIN_SECONDS = 0.05


class StillLocked(Exception):
    """Somebody held a lock for as long as we were willing to wait."""


@contextmanager
def exclusive(path: Path, most_seconds: float) -> Iterator[None]:
    """Wait for the lock on a file, and hold it for the block.

    Raises:
        StillLocked: it was not free in that time; a process that is stopped keeps its locks.
    """
    deadline = time.monotonic() + most_seconds
    while (descriptor := try_to_hold(path)) is None:
        if time.monotonic() >= deadline:
            raise StillLocked(path)
        time.sleep(_LOOK_AGAIN_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)


def try_to_hold(path: Path) -> int | None:
    """Take the lock on a file until its descriptor is closed; None if another process or descriptor holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
