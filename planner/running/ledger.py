"""What a runner writes into the store, under its name and with patience: a database that restarts loses nothing.

Every write about a search is conditional on its owner and attempt. Whoever was frozen past his lease finds, once he is
back, that the search is somebody else's, and changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from db.errors import StoreUnavailable
from db.records import Code, Json, Search, SearchResult
from db.repositories import Repositories
from db.store import Store
from planner.running.errors import failure

_log = logging.getLogger("planner.running")
_T = TypeVar("_T")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 3.0
_PATIENCE_S = 120.0
# While servers are updated one by one, those of the old version still run what was asked of them.
_FOR_OTHER_CODE = timedelta(hours=1)
OUTDATED = failure("outdated", "it was asked of another version of the planner, which no longer runs; ask again")

Listener = Callable[[str], None]


class Ledger:
    """The store from the point of view of one owner of searches.

    Args:
        lease_s: for how long a claim or a renewal holds.
        most_attempts: a search whose owners died this often is not tried again.
        hurry: once it is set, what the store refuses is not tried again.
        code: only searches that were asked of it are taken; None takes all.
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        lease_s: float,
        most_attempts: int,
        hurry: threading.Event,
        code: Code | None = None,
    ) -> None:
        self.store, self.owner, self._code = store, owner, code
        self._lease, self._most_attempts, self._hurry = timedelta(seconds=lease_s), most_attempts, hurry
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell a listener of every change written here, from the thread that wrote it; returns how to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def claim(self) -> Search | None:
        """The oldest search that waits or was lost, now ours.

        Raises:
            StoreUnavailable: the store can't be written.
        """
        now = datetime.now(UTC)
        with self.store.writing() as repos:
            search = repos.searches.claim(self.owner, now, now + self._lease, self._most_attempts, self._code)
        if search is not None:
            _log.info("search %s: begun, attempt %d", search.id, search.attempt, extra=self._fields(search))
            self._publish(search.id)
        return search

    def keep(self, ids: Collection[str]) -> set[str]:
        """Renew our leases, and end searches that too many owners died of or that wait for code that is gone.

        Returns:
            Those of ours to be stopped.

        Raises:
            StoreUnavailable: the store can't be written.
        """
        now = datetime.now(UTC)
        died = failure("search-lost", f"{self._most_attempts} processes that worked on it died")
        with self.store.writing() as repos:
            unwanted = repos.searches.renew(self.owner, ids, now + self._lease)
            given_up = repos.searches.give_up(now, self._most_attempts, died)
            if self._code is not None:
                given_up += repos.searches.give_up_other_code(self._code, now - _FOR_OTHER_CODE, OUTDATED, now)
        if given_up:
            _log.error("%d searches were given up", given_up, extra={"owner": self.owner, "searches": given_up})
        return unwanted

    def tell(self, search: Search, step: str, figures: Json) -> None:
        """Add an event. It is only news, so one that can't be written, or comes too late, is left out."""
        try:
            with self.store.writing() as repos:
                repos.searches.tell(search.id, self.owner, search.attempt, step, figures, datetime.now(UTC))
        except Exception as error:
            expected = isinstance(error, StoreUnavailable)
            said = "search %s: an event is lost, %s"
            _log.warning(said, search.id, error, exc_info=not expected, extra=self._fields(search))
        else:
            self._publish(search.id)

    def finish(self, search: Search, result: SearchResult) -> None:
        """Write the answer."""
        self._end(search, result.status, lambda repos, own, now: repos.searches.finish(*own, result, now))

    def fail(self, search: Search, problem: Json) -> None:
        """Write why there is no answer."""
        said = f"failed, {problem['detail']}"
        self._end(search, said, lambda repos, own, now: repos.searches.fail(*own, problem, now))

    def cancel(self, search: Search) -> None:
        """Write that it was stopped as asked."""
        self._end(search, "cancelled", lambda repos, own, now: repos.searches.mark_cancelled(*own, now))

    def release(self) -> None:
        """Put all that is ours back into the queue.

        Raises:
            StoreUnavailable: the store can't be written; the searches are free when their leases have run out.
        """
        with self.store.writing() as repos:
            released = repos.searches.release(self.owner, datetime.now(UTC))
        if released:
            _log.info("%d searches were put back", released, extra={"owner": self.owner, "searches": released})

    def patiently(self, search: Search, step: Callable[[], _T]) -> _T:
        """A step about a search, again and again while the store is away, for a while.

        Raises:
            StoreUnavailable: it was away for too long.
        """
        end, pause = time.monotonic() + _PATIENCE_S, _FIRST_PAUSE_S
        while True:
            try:
                return step()
            except StoreUnavailable as error:
                if self._hurry.is_set() or time.monotonic() + pause > end:
                    raise
                _log.warning("search %s: again in %.1f s, %s", search.id, pause, error, extra=self._fields(search))
            self._hurry.wait(pause)
            pause = min(2.0 * pause, _LONGEST_PAUSE_S)

    def _end(
        self, search: Search, said: str, write: Callable[[Repositories, tuple[str, str, int], datetime], bool]
    ) -> None:
        own = (search.id, self.owner, search.attempt)

        def step() -> bool:
            with self.store.writing() as repos:
                return write(repos, own, datetime.now(UTC))

        written = self.patiently(search, step)
        fields = self._fields(search) | {"outcome": said}
        if search.started_at is not None:
            fields["seconds"] = round((datetime.now(UTC) - search.started_at).total_seconds(), 3)
        if written:
            _log.info("search %s: %s", search.id, said, extra=fields)
        else:
            _log.warning("search %s: not ours any more (%s)", search.id, said, extra=fields)
        self._publish(search.id)

    def _publish(self, search_id: str) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(search_id)
            except Exception:
                _log.exception("a listener failed", extra={"search_id": search_id})

    def _fields(self, search: Search) -> dict[str, Any]:
        return {"search_id": search.id, "owner": self.owner, "attempt": search.attempt}
