"""How searches end that run here, for the counter."""

from __future__ import annotations

from threading import Lock

from api.metrics import Metrics
from api.schemas.answers.searches import OVER
from db.store import Store

_MOST_TOUCHED = 200


class Endings:
    """Told of every change of a search; which of them are over is looked up when somebody reads the counter."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store, self._metrics, self._lock = store, metrics, Lock()
        self._touched: set[str] = set()

    def changed(self, search_id: str) -> None:
        """Something was written here about a search; may be called from any thread."""
        with self._lock:
            self._touched.add(search_id)
            full = len(self._touched) >= _MOST_TOUCHED
        if full:
            self.count()

    def count(self) -> None:
        """Count those that are over.

        Raises:
            StoreUnavailable: the store can't be read; they are counted later.
        """
        with self._lock:
            touched, self._touched = self._touched, set()
        try:
            with self._store.reading() as repos:
                found = [repos.searches.get(search_id) for search_id in touched]
        except Exception:
            with self._lock:
                self._touched |= touched
            raise
        for search in found:
            if search is not None and search.state in OVER:
                self._metrics.ended.labels(search.status or search.state).inc()
