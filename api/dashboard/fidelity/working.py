"""What takes seconds to work out: worked out once, in a thread of its own, while pages say so."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar

from api.problems import ProblemRaised

T = TypeVar("T")


class Workings(Generic[T]):
    """Results by key, the ones asked for last. One is worked out at a time, in the order in which they were asked for.

    Args:
        most: how many are kept or wait; beyond, the one that was not asked for longest goes.
    """

    def __init__(self, most: int = 6) -> None:
        self._most, self._lock = most, Lock()
        self._found: OrderedDict[str, Future[T]] = OrderedDict()
        self._waiting: SimpleQueue[tuple[Future[T], Callable[[], T]]] = SimpleQueue()
        self._thread: Thread | None = None

    def ask(self, key: str, work: Callable[[], T]) -> Future[T]:
        """The result of that key, or the promise of it; one that failed is worked out again.

        Raises:
            ProblemRaised: too many wait.
        """
        with self._lock:
            known = self._found.get(key)
            if known is not None and not (known.done() and known.exception()):
                self._found.move_to_end(key)
                return known
            self._make_room()
            promised: Future[T] = Future()
            self._found[key] = promised
            self._waiting.put((promised, work))
            if self._thread is None:
                # A daemon: a server that stops does not wait for figures that nobody will read.
                self._thread = Thread(target=self._run, name="fidelity", daemon=True)
                self._thread.start()
            return promised

    def _make_room(self) -> None:
        for key in [key for key, found in self._found.items() if found.done()]:
            if len(self._found) < self._most:
                return
            del self._found[key]
        if len(self._found) >= self._most:
            raise ProblemRaised(503, f"{self._most} calibrations are being judged already: ask again in a moment")

    def _run(self) -> None:
        while True:
            promised, work = self._waiting.get()
            try:
                promised.set_result(work())
            except BaseException as error:  # whoever asks gets it
                promised.set_exception(error)
