"""Searches, on both databases: asked once, and worked on by one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from db.store import Store
from tests.db.samples import LEASE, NOON, keep, later, new_search, result
from tests.db.searching import PROBLEM, SCENARIO, claimed, kinds, queued, read


@pytest.fixture(autouse=True)
def _known(store: Store) -> None:
    keep(store, SCENARIO)


def test_a_new_search_waits(store: Store) -> None:
    new = new_search(SCENARIO, created_by="ci")
    with store.writing() as repos:
        search, is_new = repos.searches.add(new, NOON)
    assert is_new
    assert (search.id, search.state, search.attempt, search.created_at) == (new.id, "queued", 0, NOON)
    assert (search.model, search.cluster, search.devices, search.calibration) == (
        "llama-3.1-8b",
        "dgx-h100",
        16,
        "shipped",
    )
    assert search.question == new.question
    assert search.created_by == "ci"
    assert read(store, new.id) == search
    assert kinds(store, new.id) == ["queued"]
    with store.reading() as repos:
        assert repos.searches.waiting() == 1


def test_the_same_question_is_the_same_search_while_it_lives(store: Store) -> None:
    first = queued(store)
    with store.writing() as repos:
        again, new = repos.searches.add(new_search(SCENARIO), later(1))
        other_seed, new_seed = repos.searches.add(new_search(SCENARIO, seed=1), later(1))
        other_time, new_time = repos.searches.add(new_search(SCENARIO, max_seconds=5.0), later(1))
    assert (again.id, new) == (first.id, False)
    assert (new_seed, new_time) == (True, True)
    assert len({first.id, other_seed.id, other_time.id}) == 3


def test_many_who_ask_at_once_get_one_search(store: Store) -> None:
    def ask(_: int) -> tuple[str, bool]:
        with store.writing() as repos:
            repos.scenarios.put(SCENARIO, NOON)
            search, new = repos.searches.add(new_search(SCENARIO), NOON)
        return search.id, new

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(50)))
    assert len({id for id, _ in answers}) == 1
    assert sum(new for _, new in answers) == 1


def test_the_oldest_is_claimed_first(store: Store) -> None:
    second = queued(store, 2, seed=2)
    first = queued(store, 1, seed=1)
    claims = [claimed(store, second=3) for _ in range(3)]
    assert [claim and claim.id for claim in claims] == [first.id, second.id, None]
    one = claims[0]
    assert one is not None
    assert (one.state, one.owner, one.attempt) == ("running", "one", 1)
    assert (one.started_at, one.lease_until) == (later(3), later(3) + LEASE)
    assert kinds(store, first.id) == ["queued", "running"]


def test_no_two_get_the_same_search(store: Store) -> None:
    made = {queued(store, seed=seed).id for seed in range(24)}

    def work(owner: str) -> list[str]:
        found = []
        while (claim := claimed(store, owner)) is not None:
            found.append(claim.id)
        return found

    with ThreadPoolExecutor(8) as pool:
        taken = [id for ids in pool.map(work, map(str, range(8))) for id in ids]
    # One that is being changed is passed over, and one pass may find nothing else; nothing is taken twice.
    assert len(taken) == len(set(taken))
    assert {*taken, *work("last")} == made


def test_a_search_whose_owner_is_silent_is_anybodys(store: Store) -> None:
    search = queued(store)
    first = claimed(store, "one", 1)
    assert claimed(store, "two", 2) is None
    second = claimed(store, "two", 60)
    assert first is not None
    assert second is not None
    assert (second.id, second.owner, second.attempt) == (search.id, "two", 2)
    with store.writing() as repos:
        assert not repos.searches.finish(search.id, "one", first.attempt, result(SCENARIO), later(61))
        assert not repos.searches.fail(search.id, "one", first.attempt, PROBLEM, later(61))
        assert not repos.searches.mark_cancelled(search.id, "one", first.attempt, later(61))
        assert repos.searches.renew("one", [search.id], later(90)) == {search.id}
    with store.reading() as repos:
        assert repos.plans.of_search(search.id) == []
    assert read(store, search.id) == second


def test_the_same_owner_of_an_earlier_attempt_can_not_finish(store: Store) -> None:
    search = queued(store)
    claimed(store, "one", 1)
    again = claimed(store, "one", 60)
    assert again is not None
    with store.writing() as repos:
        assert not repos.searches.finish(search.id, "one", 1, result(SCENARIO), later(61))
        assert repos.searches.finish(search.id, "one", 2, result(SCENARIO), later(61))


def test_who_renews_keeps(store: Store) -> None:
    search = queued(store)
    claimed(store, "one", 1)
    with store.writing() as repos:
        assert repos.searches.renew("one", [search.id], later(300)) == set()
        assert repos.searches.renew("one", [], later(300)) == set()
    assert claimed(store, "two", 60) is None


def test_one_search_can_be_claimed_by_its_id(store: Store) -> None:
    queued(store, 0)
    younger = queued(store, 1, seed=1)
    with store.writing() as repos:
        claim = repos.searches.claim_this(younger.id, "one", later(2), later(2) + LEASE)
        assert claim is not None
        assert claim.id == younger.id
        assert repos.searches.claim_this(younger.id, "two", later(3), later(3) + LEASE) is None
        assert repos.searches.claim_this("f" * 32, "two", later(3), later(3) + LEASE) is None


def test_whoever_asks_again_takes_back_that_its_end_was_asked_for(store: Store) -> None:
    search = queued(store)
    claim = claimed(store)
    assert claim is not None
    with store.writing() as repos:
        repos.searches.request_cancel(search.id, later(2))
        joined, new = repos.searches.add(new_search(SCENARIO), later(3))
        assert (joined.id, new) == (search.id, False)
        assert repos.searches.renew("one", [search.id], later(60)) == set()
        # Its owner had been told before, and stopped.
        assert repos.searches.mark_cancelled(search.id, "one", claim.attempt, later(4))
    again = claimed(store, "two", 5)
    assert again is not None
    assert (again.id, again.cancel_requested) == (search.id, False)
    assert kinds(store, search.id) == ["queued", "running", "queued", "running"]
