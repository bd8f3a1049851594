"""Keeps a trial its worker's, for as long as the worker gives a sign."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from db import records
from db.errors import StoreUnavailable

if TYPE_CHECKING:
    from planner.studying.worker import Worker

OVER = "its study is over"
LOST = "it took longer than its lease to give a sign, so others may run it now"


class Sign:
    """Calls ``renew`` with the end of a new lease four times a lease, from a thread of its own.

    Until the block ends, or ``renew`` says False: what it renewed is ours no more.
    """

    def __init__(self, renew: Callable[[datetime], bool], lease_s: float) -> None:
        self._renew, self._lease_s = renew, lease_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._give, name="lease", daemon=True)

    def __enter__(self) -> Sign:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _give(self) -> None:
        while not self._over.wait(self._lease_s / 4.0):
            # A store that is away for longer than the lease: others take over.
            with suppress(StoreUnavailable):
                if not self._renew(datetime.now(UTC) + timedelta(seconds=self._lease_s)):
                    return


class Kept:
    """Keeps a trial ours while it runs."""

    def __init__(self, worker: Worker, trial: records.Trial) -> None:
        self.worker, self.trial = worker, trial
        self.lost = False
        self._until = time.monotonic() + worker.lease_s
        self._sign = Sign(self._renew, worker.lease_s)

    def __enter__(self) -> Kept:
        self._sign.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._sign.__exit__()

    def note(self, handle: str, details: records.Json) -> None:
        """Store by what it is found again."""
        with self.worker.store.writing() as repos:
            self.lost |= not repos.studies.note(self.trial, handle=handle, details=details)

    def why_stopped(self) -> str | None:
        """Why the trial is to be stopped; None while it is wanted."""
        if self.lost or time.monotonic() > self._until:
            self.lost = True
            return LOST
        if self.worker.stopping.is_set():
            return "its worker was stopped"
        return self._study_over

    _study_over: str | None = None

    def _renew(self, lease_until: datetime) -> bool:
        until = time.monotonic() + self.worker.lease_s
        with self.worker.store.writing() as repos:
            kept = repos.studies.renew(self.trial, lease_until)
            now = repos.studies.trial(self.trial.study_id, self.trial.number)
        if kept:
            self._until = until
        elif now is not None and (now.owner, now.attempt) == (self.trial.owner, self.trial.attempt):
            self._study_over = OVER
        else:
            self.lost = True
        return True
