"""Steps of a search's life, for tests that begin in the middle of it."""

from __future__ import annotations

from db.records import Search
from db.store import Store
from tests.db.samples import LEASE, later, new_search, scenario

SCENARIO = scenario()
MOST = 3
PROBLEM = {"type": "search-lost", "title": "Nobody could finish it"}


def queued(store: Store, second: float = 0, **how: object) -> Search:
    with store.writing() as repos:
        search, new = repos.searches.add(new_search(SCENARIO, **how), later(second))
    assert new
    return search


def claimed(store: Store, owner: str = "one", second: float = 1) -> Search | None:
    with store.writing() as repos:
        return repos.searches.claim(owner, later(second), later(second) + LEASE, MOST)


def read(store: Store, id: str) -> Search:
    with store.reading() as repos:
        found = repos.searches.get(id)
    assert found is not None
    return found


def kinds(store: Store, id: str) -> list[str]:
    with store.reading() as repos:
        events = repos.events.after(id, 0)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    return [event.kind for event in events]
