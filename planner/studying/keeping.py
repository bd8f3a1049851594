"""Keeps a trial its worker's, for as long as the worker gives a sign."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from db import records
from db.errors import StoreUnavailable

if TYPE_CHECKING:
    from planner.studying.worker import Worker

OVER = "its study is over"
LOST = "it took longer than its lease to give a sign, so others may run it now"


class Kept:
    """Keeps a trial ours while it runs, from a thread of its own."""

    def __init__(self, worker: Worker, trial: records.Trial) -> None:
        self.worker, self.trial = worker, trial
        self.lost = False
        self._over = threading.Event()
        self._until = time.monotonic() + worker.lease_s
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> Kept:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

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

    def _renew(self) -> None:
        while not self._over.wait(self.worker.lease_s / 4.0):
            until = time.monotonic() + self.worker.lease_s
            try:
                with self.worker.store.writing() as repos:
                    kept = repos.studies.renew(self.trial, datetime.now(UTC) + timedelta(seconds=self.worker.lease_s))
                    now = repos.studies.trial(self.trial.study_id, self.trial.number)
            except StoreUnavailable:
                continue
            if kept:
                self._until = until
            elif now is not None and (now.owner, now.attempt) == (self.trial.owner, self.trial.attempt):
                self._study_over = OVER
            else:
                self.lost = True
