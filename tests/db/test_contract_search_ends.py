"""How searches end, on both databases: answered, failed, cancelled, put back, given up."""

from __future__ import annotations

import pytest

from db.records import Code, Search
from db.store import Store
from tests.db.samples import LEASE, NOON, keep, later, new_search, plan, result, scenario
from tests.db.searching import MOST, PROBLEM, SCENARIO, claimed, kinds, queued, read


@pytest.fixture(autouse=True)
def _known(store: Store) -> None:
    keep(store, SCENARIO)


def test_an_answer_is_written_as_a_whole(store: Store) -> None:
    search = queued(store)
    claim = claimed(store)
    assert claim is not None
    answer = result(SCENARIO)
    with store.writing() as repos:
        assert repos.searches.finish(search.id, "one", claim.attempt, answer, later(2))
    done = read(store, search.id)
    assert (done.state, done.status, done.finished_at) == ("done", "optimal", later(2))
    assert (done.best, done.gap, done.proven_top_k, done.plans_within) == (1.0, 0.0, True, 2)
    assert done.details == answer.details
    assert (done.problem, done.owner, done.lease_until) == (None, None, None)
    with store.reading() as repos:
        assert repos.plans.of_search(search.id) == answer.plans
    assert kinds(store, search.id) == ["queued", "running", "done"]
    with store.writing() as repos:
        assert not repos.searches.finish(search.id, "one", claim.attempt, answer, later(3))


def test_nothing_of_an_answer_stays_when_writing_it_fails(store: Store) -> None:
    search = queued(store)
    claim = claimed(store)
    assert claim is not None
    answer = result(SCENARIO)
    # The second plan is of a scenario that is not stored.
    broken = result(SCENARIO, plans=[answer.plans[0], plan(scenario(model="not stored"))])
    with pytest.raises(Exception, match=r"(?i)foreign key"), store.writing() as repos:
        repos.searches.finish(search.id, "one", claim.attempt, broken, later(2))
    assert read(store, search.id) == claim
    with store.reading() as repos:
        assert repos.plans.get(answer.plans[0].id) is None


def test_the_same_plan_may_answer_two_searches(store: Store) -> None:
    answer = result(SCENARIO)
    with store.writing() as repos:
        first = repos.searches.store_answer(new_search(SCENARIO), answer, NOON)
        second = repos.searches.store_answer(new_search(SCENARIO, seed=1), answer, later(1))
    with store.reading() as repos:
        assert repos.plans.of_search(first.id) == repos.plans.of_search(second.id) == answer.plans
    assert first.state == "done"
    assert kinds(store, first.id) == ["done"]


def test_a_failure_says_why(store: Store) -> None:
    search = queued(store)
    claim = claimed(store)
    assert claim is not None
    with store.writing() as repos:
        assert repos.searches.fail(search.id, "one", claim.attempt, PROBLEM, later(2))
    failed = read(store, search.id)
    assert (failed.state, failed.problem, failed.finished_at) == ("failed", PROBLEM, later(2))
    assert kinds(store, search.id) == ["queued", "running", "failed"]
    # The question may be asked again.
    assert queued(store, 3).id != search.id


def test_cancelling_what_waits_ends_it(store: Store) -> None:
    search = queued(store)
    with store.writing() as repos:
        cancelled = repos.searches.request_cancel(search.id, later(1))
        assert repos.searches.request_cancel("f" * 32, later(1)) is None
    assert cancelled is not None
    assert (cancelled.state, cancelled.finished_at) == ("cancelled", later(1))
    assert claimed(store, second=2) is None
    assert kinds(store, search.id) == ["queued", "cancelled"]


def test_cancelling_what_runs_is_told_to_its_owner(store: Store) -> None:
    search = queued(store)
    claim = claimed(store)
    assert claim is not None
    with store.writing() as repos:
        asked = repos.searches.request_cancel(search.id, later(2))
    assert asked is not None
    assert (asked.state, asked.cancel_requested) == ("running", True)
    with store.writing() as repos:
        assert repos.searches.renew("one", [search.id], later(60)) == {search.id}
        assert repos.searches.mark_cancelled(search.id, "one", claim.attempt, later(3))
    assert kinds(store, search.id) == ["queued", "running", "cancelled"]
    with store.writing() as repos:
        unchanged = repos.searches.request_cancel(search.id, later(4))
    assert unchanged == read(store, search.id)
    assert unchanged.finished_at == later(3)


def test_cancelling_what_its_owner_lost_ends_it(store: Store) -> None:
    search = queued(store)
    claimed(store)
    with store.writing() as repos:
        cancelled = repos.searches.request_cancel(search.id, later(90))
    assert cancelled is not None
    assert cancelled.state == "cancelled"


def test_who_stops_puts_searches_back(store: Store) -> None:
    wanted, unwanted, others = (queued(store, seed, seed=seed) for seed in range(3))
    assert [getattr(claimed(store, owner, 4), "id", None) for owner in ("one", "one", "two")] == [
        wanted.id,
        unwanted.id,
        others.id,
    ]
    with store.writing() as repos:
        repos.searches.request_cancel(unwanted.id, later(5))
        assert repos.searches.release("one", later(6)) == 2
    assert [read(store, search.id).state for search in (wanted, unwanted, others)] == [
        "queued",
        "cancelled",
        "running",
    ]
    again = claimed(store, "three", 7)
    assert again is not None
    # Who puts it back has not died of it.
    assert (again.id, again.attempt) == (wanted.id, 1)


def test_other_code_leaves_a_search_to_its_own_until_that_is_gone(store: Store) -> None:
    old, new = Code(cost_model_version="1", search_version="a"), Code(cost_model_version="2", search_version="a")
    search = queued(store, cost_model_version="1", search_version="a")

    def taken(code: Code, second: float) -> Search | None:
        with store.writing() as repos:
            return repos.searches.claim("one", later(second), later(second) + LEASE, MOST, code)

    def given_up(code: Code, asked_before: float, second: float) -> int:
        with store.writing() as repos:
            return repos.searches.give_up_other_code(code, later(asked_before), PROBLEM, later(second))

    assert taken(new, 1) is None
    assert given_up(new, asked_before=0, second=1) == 0
    found = taken(old, 2)
    assert found is not None
    assert found.id == search.id
    # Its owner is alive, and then it is not.
    assert given_up(new, asked_before=5, second=3) == 0
    assert given_up(old, asked_before=500, second=500) == 0
    assert taken(new, 500) is None
    assert given_up(new, asked_before=500, second=500) == 1
    assert read(store, search.id).problem == PROBLEM
    assert kinds(store, search.id) == ["queued", "running", "failed"]


def test_what_kills_its_owners_is_given_up(store: Store) -> None:
    search, unwanted = queued(store), queued(store, 1, seed=1)
    for attempt in range(MOST):
        claim = claimed(store, second=100.0 * attempt + 2)
        assert claim is not None
        assert (claim.id, claim.attempt) == (search.id, attempt + 1)
    with store.writing() as repos:
        repos.searches.claim_this(unwanted.id, "one", later(200), later(230))
        repos.searches.request_cancel(unwanted.id, later(201))
    assert claimed(store, second=300) is None
    with store.writing() as repos:
        assert repos.searches.give_up(later(202), MOST, PROBLEM) == 0
        assert repos.searches.give_up(later(300), MOST, PROBLEM) == 2
        assert repos.searches.give_up(later(300), MOST, PROBLEM) == 0
    failed = read(store, search.id)
    assert (failed.state, failed.problem) == ("failed", PROBLEM)
    assert read(store, unwanted.id).state == "cancelled"
