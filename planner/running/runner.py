"""The runner: takes searches from the store into worker processes, and keeps them for as long as they run.

One thread per slot owns a worker and works on one search at a time; of the idle ones, one at a time asks the store for
more. A thread beside them renews the leases and relays what is to be stopped. Any number of runners may share a store:
a search belongs to whoever claimed it for as long as he renews its lease, and to nobody afterwards.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from costmodel.errors import PlannerError
from db.errors import StoreUnavailable
from db.records import Code, Search, SearchResult
from db.store import Store
from planner.running.errors import JobFailed, JobStopped, WorkersUnavailable, failure, problem_of
from planner.running.job import Job
from planner.running.ledger import Ledger, Listener
from planner.running.pool import Pool
from planner.running.process import WorkerProcess

_log = logging.getLogger("planner.running")

_PAUSE_AFTER_ERROR_S = 1.0
_LAST_WRITES_S = 5.0


class Runner:
    """Runs the searches of a store. ``start`` it once, ``close`` it once.

    Args:
        work_of: from a stored search to the job that answers it. May read the store. An error of ours that it raises
            becomes the search's problem.
        result_of: from the search and the job's result to what is stored.
        slots: how many searches at once, each in a process of its own.
        name: of this machine, in the owner's name of searches; by default its host name.
        poll_s: how often the store is asked for searches that came in elsewhere.
        lease_s: after so long without a sign of life, others may take a search over.
        renew_s: how often there is such a sign, and cancels are looked for.
        most_attempts: how many owners a search may lose before it is given up.
        code: only searches that were asked of it are taken; None takes all.
    """

    def __init__(
        self,
        store: Store,
        work_of: Callable[[Search], Job],
        result_of: Callable[[Search, Any], SearchResult],
        *,
        slots: int,
        name: str | None = None,
        poll_s: float = 1.0,
        lease_s: float = 10.0,
        renew_s: float = 2.0,
        most_attempts: int = 3,
        code: Code | None = None,
    ) -> None:
        self.owner = f"{name or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.slots = slots
        self._work_of, self._result_of = work_of, result_of
        self._poll_s, self._renew_s = poll_s, renew_s
        # First nothing new is begun, then nothing goes on.
        self._closing, self._ended = threading.Event(), threading.Event()
        self._ledger = Ledger(store, self.owner, lease_s, most_attempts, hurry=self._ended, code=code)
        self._pool: Pool | None = None
        self._asking, self._more, self._look = threading.Lock(), threading.Event(), threading.Event()
        self._running: dict[tuple[str, int], threading.Event] = {}
        self._changing = threading.Lock()
        self._threads: list[threading.Thread] = []

    @property
    def ready(self) -> bool:
        """Whether a worker has started, so that a search would be begun."""
        return self._pool is not None and self._pool.ready and not self._closing.is_set()

    @property
    def running(self) -> int:
        """How many searches run here."""
        return len(self._running)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener(search_id)`` after every event and change of state that is written here.

        It is called from the runner's threads and should return at once. What is returned ends the subscription.
        """
        return self._ledger.subscribe(listener)

    def start(self) -> None:
        """Start workers and threads; returns before they are ready.

        Raises:
            WorkersUnavailable: the system gives us no process.
        """
        pool = self._pool = Pool(self.slots)
        slots = [
            threading.Thread(target=self._work, args=(pool,), name=f"search slot {number}", daemon=True)
            for number in range(self.slots)
        ]
        self._threads = [*slots, threading.Thread(target=self._keep, name="search leases", daemon=True)]
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Say that a search was queued, or its end asked for: neither waits for the next look into the store."""
        self._more.set()
        self._look.set()

    def close(self, grace_s: float = 0.0) -> None:
        """Begin nothing more, wait for what runs, then stop it and put it back, so that others can take it.

        Args:
            grace_s: how long to wait for searches that run.
        """
        self._closing.set()
        self._more.set()
        end = time.monotonic() + grace_s
        while self._running and time.monotonic() < end:
            time.sleep(0.02)
        self._ended.set()
        self._look.set()
        if self._pool is not None:
            self._pool.close()
        end = time.monotonic() + _LAST_WRITES_S
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))
        try:
            self._ledger.release()
        except Exception as error:
            _log.warning("searches are not put back: %s", error, extra={"owner": self.owner})

    # -- slots ---------------------------------------------------------------------------------------------------------

    def _work(self, pool: Pool) -> None:
        while not self._closing.is_set():
            try:
                with pool.worker() as worker:
                    search = self._next()
                    if search is not None:
                        self._run(search, worker)
            except Exception as error:
                if self._closing.is_set():
                    return
                expected = isinstance(error, WorkersUnavailable | StoreUnavailable)
                _log.error("a slot failed: %s", error, exc_info=not expected, extra={"owner": self.owner})
                self._closing.wait(_PAUSE_AFTER_ERROR_S)

    def _next(self) -> Search | None:
        """Wait for a search and claim it; None when it is time to close."""
        with self._asking:
            while not self._closing.is_set():
                # Cleared before the store is asked: what is queued while it is asked wakes the wait below.
                self._more.clear()
                search = self._ledger.claim()
                if search is not None:
                    return search
                self._more.wait(self._poll_s)
        return None

    def _run(self, search: Search, worker: WorkerProcess) -> None:
        """Run a search to its end, whatever that is, and write it."""
        fields = {"search_id": search.id, "owner": self.owner, "attempt": search.attempt}
        with self._held(search) as stopped:
            try:
                job = self._ledger.patiently(search, lambda: self._work_of(search))
                found = worker.run(
                    job, search.max_seconds, lambda step, figures: self._ledger.tell(search, step, figures), stopped
                )
                self._ledger.finish(search, self._result_of(search, found))
            except (StoreUnavailable, WorkersUnavailable):
                # It stays ours until the lease runs out, or is put back when we close.
                raise
            except JobStopped:
                self._ledger.cancel(search)
            except JobFailed as error:
                if error.trace:
                    _log.error("search %s: %s\n%s", search.id, error, error.trace, extra=fields)
                self._ledger.fail(search, error.problem)
            except PlannerError as error:
                self._ledger.fail(search, problem_of(error))
            except Exception as error:
                _log.exception("search %s: an unexpected error", search.id, extra=fields)
                detail = f"an unexpected error, {type(error).__name__}: {error}"
                self._ledger.fail(search, failure("unexpected-error", detail))

    @contextmanager
    def _held(self, search: Search) -> Iterator[threading.Event]:
        """Keep the search's lease for the block; what is yielded is set when the search has to be stopped."""
        stopped = threading.Event()
        with self._changing:
            # After a freeze we may claim what we lost ourselves: what still runs of it is of no use.
            for (other, _), its_end in self._running.items():
                if other == search.id:
                    its_end.set()
            self._running[search.id, search.attempt] = stopped
        try:
            yield stopped
        finally:
            with self._changing:
                del self._running[search.id, search.attempt]

    # -- leases --------------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while not self._ended.is_set():
            self._look.wait(self._renew_s)
            self._look.clear()
            with self._changing:
                held = dict(self._running)
            try:
                unwanted = self._ledger.keep({search_id for search_id, _ in held})
            except Exception as error:
                _log.warning("leases are not renewed: %s", error, extra={"owner": self.owner})
                continue
            for (search_id, _), stopped in held.items():
                if search_id in unwanted:
                    stopped.set()
