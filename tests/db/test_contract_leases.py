"""Who may still write about a search, on both databases: progress is told by its owner only, leases can be ended."""

from __future__ import annotations

from datetime import datetime

import pytest

from db.records import Search
from db.store import Store
from tests.db.samples import LEASE, keep, later, new_search, result, scenario

SCENARIO = scenario()
MOST = 3


@pytest.fixture(autouse=True)
def _known(store: Store) -> None:
    keep(store, SCENARIO)


def claimed(store: Store, owner: str, now: datetime) -> Search | None:
    with store.writing() as repos:
        return repos.searches.claim(owner, now, now + LEASE, MOST)


def begun(store: Store, owner: str = "one") -> Search:
    with store.writing() as repos:
        repos.searches.add(new_search(SCENARIO), later(0))
    found = claimed(store, owner, later(1))
    assert found is not None
    return found


def kinds(store: Store, id: str) -> list[str]:
    with store.reading() as repos:
        return [event.kind for event in repos.events.after(id, 0)]


def test_progress_is_told_by_the_owner_of_the_attempt_and_nobody_else(store: Store) -> None:
    search = begun(store)
    with store.writing() as repos:
        assert repos.searches.tell(search.id, "one", 1, "candidates", {"meshes": 7}, later(2))
        assert not repos.searches.tell(search.id, "other", 1, "candidates", {}, later(2))
        assert not repos.searches.tell(search.id, "one", 2, "candidates", {}, later(2))
        assert not repos.searches.tell("0" * 32, "one", 1, "candidates", {}, later(2))
    assert kinds(store, search.id) == ["queued", "running", "candidates"]
    with store.writing() as repos:
        repos.searches.finish(search.id, "one", 1, result(SCENARIO), later(3))
        assert not repos.searches.tell(search.id, "one", 1, "listed", {}, later(4))
    assert kinds(store, search.id)[-1] == "done"


def test_a_search_whose_lease_was_ended_is_anybodys_at_once(store: Store) -> None:
    search = begun(store)
    assert claimed(store, "other", later(2)) is None
    with store.writing() as repos:
        assert repos.searches.end_leases(later(2)) == 1
        assert repos.searches.end_leases(later(2)) == 0
    taken = claimed(store, "other", later(3))
    assert taken is not None
    assert (taken.id, taken.owner, taken.attempt) == (search.id, "other", 2)


def test_ending_leases_leaves_what_waits_or_is_over_alone(store: Store) -> None:
    search = begun(store)
    with store.writing() as repos:
        repos.searches.finish(search.id, "one", 1, result(SCENARIO), later(2))
        waiting, _ = repos.searches.add(new_search(SCENARIO, seed=1), later(2))
        assert repos.searches.end_leases(later(3)) == 0
    with store.reading() as repos:
        found = [repos.searches.get(id) for id in (search.id, waiting.id)]
    assert [one and (one.state, one.lease_until) for one in found] == [("done", None), ("queued", None)]
