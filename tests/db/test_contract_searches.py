"""Searches, on both databases: asked once, worked on by one, answered once, found again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from db.records import Code, Search
from db.store import Store
from tests.db.samples import (
    LEASE,
    NOON,
    keep,
    later,
    new_search,
    other_calibration,
    plan,
    result,
    scenario,
)

SCENARIO = scenario()
MOST = 3
PROBLEM = {"type": "search-lost", "title": "Nobody could finish it"}


@pytest.fixture(autouse=True)
def _known(store: Store) -> None:
    keep(store, SCENARIO)


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


def test_a_proven_answer_is_for_every_seed_and_time(store: Store) -> None:
    new = new_search(SCENARIO)
    with store.writing() as repos:
        done = repos.searches.store_answer(new, result(SCENARIO), NOON)
    with store.reading() as repos:
        assert repos.searches.answered(new.key, 0, 60.0) == done
        assert repos.searches.answered(new.key, 7, 3600.0) == done
        assert repos.searches.answered("f" * 32, 0, 60.0) is None


def test_so_is_one_that_there_is_no_plan(store: Store) -> None:
    new = new_search(SCENARIO)
    nothing = result(SCENARIO, status="infeasible", best=None, bound=None, gap=None, proven_top_k=False, plans=[])
    with store.writing() as repos:
        done = repos.searches.store_answer(new, nothing, NOON)
    with store.reading() as repos:
        assert repos.searches.answered(new.key, 7, 3600.0) == done


def test_an_answer_that_was_cut_is_for_its_seed_and_no_more_time(store: Store) -> None:
    new = new_search(SCENARIO, seed=1, max_seconds=10.0)
    cut = result(SCENARIO, status="feasible", proven_top_k=False)
    with store.writing() as repos:
        done = repos.searches.store_answer(new, cut, NOON)
    with store.reading() as repos:
        assert repos.searches.answered(new.key, 1, 10.0) == done
        assert repos.searches.answered(new.key, 1, 2.0) == done
        assert repos.searches.answered(new.key, 1, 10.5) is None
        assert repos.searches.answered(new.key, 2, 10.0) is None
    with store.writing() as repos:
        proven = repos.searches.store_answer(new_search(SCENARIO), result(SCENARIO), later(-60))
    with store.reading() as repos:
        assert repos.searches.answered(new.key, 1, 10.0) == proven


def test_earlier_answers_are_those_under_other_keys(store: Store) -> None:
    ours = other_calibration()
    keep(store, SCENARIO, calibration=ours)
    with store.writing() as repos:
        repos.searches.store_answer(new_search(SCENARIO), result(SCENARIO), NOON)
        repos.searches.store_answer(new_search(SCENARIO, calibration=ours), result(SCENARIO), later(1))
        other = repos.searches.store_answer(new_search(SCENARIO, calibration=ours), result(SCENARIO), later(2))
        newest = repos.searches.store_answer(new_search(SCENARIO, key="c" * 32), result(SCENARIO), later(3))
        repos.searches.add(new_search(SCENARIO, key="d" * 32), later(4))
        asked = repos.searches.store_answer(new_search(SCENARIO), result(SCENARIO), later(5))
    with store.reading() as repos:
        earlier = repos.searches.earlier(asked)
    assert earlier == [newest, other]
    assert earlier[1].calibration == "ours"


def test_at_most_five_earlier_answers_are_named(store: Store) -> None:
    with store.writing() as repos:
        for second in range(8):
            last = repos.searches.store_answer(
                new_search(SCENARIO, key=f"{second:032x}"), result(SCENARIO), later(second)
            )
    with store.reading() as repos:
        earlier = repos.searches.earlier(last)
    assert [int(search.key, 16) for search in earlier] == [6, 5, 4, 3, 2]


def test_what_comes_later_changes_no_earlier_answers(store: Store) -> None:
    def answer(version: int, second: float) -> Search:
        new = new_search(SCENARIO, key=f"{version:032x}", id=f"{version:016x}{round(second):016x}")
        return repos.searches.store_answer(new, result(SCENARIO), later(second))

    with store.writing() as repos:
        first, second = answer(1, 0), answer(2, 1)
    with store.writing() as repos:
        for version in range(3, 9):
            answer(version, version)
        # The old code answers again, once more at the very moment of another answer.
        answer(1, 20)
        tied = [answer(1, 30), answer(2, 30)]
    with store.reading() as repos:
        assert repos.searches.earlier(first) == []
        assert repos.searches.earlier(second) == [first]
        # Of two at the same moment one is the earlier one, and only one.
        assert repos.searches.earlier(tied[1])[0] == tied[0]
        assert tied[1] not in repos.searches.earlier(tied[0])


def test_searches_are_listed_newest_first_and_filtered(store: Store) -> None:
    other = scenario(model="mixtral-8x22b", cluster="dgx-b200", accelerator="b200")
    keep(store, other)
    with store.writing() as repos:
        done = repos.searches.store_answer(new_search(other), result(other), NOON)
        cut = repos.searches.store_answer(new_search(SCENARIO), result(SCENARIO, status="feasible"), later(1))
        waiting, _ = repos.searches.add(new_search(SCENARIO, key="e" * 32), later(2))
    with store.reading() as repos:
        assert list(repos.searches.list(limit=10).items) == [waiting, cut, done]
        assert list(repos.searches.list(state="done", limit=10).items) == [cut, done]
        assert list(repos.searches.list(status="feasible", limit=10).items) == [cut]
        assert list(repos.searches.list(model="mixtral-8x22b", limit=10).items) == [done]
        assert list(repos.searches.list(cluster="dgx-h100", state="queued", limit=10).items) == [waiting]
        first = repos.searches.list(limit=2)
        rest = repos.searches.list(after=first.next, limit=2)
    assert [*first.items, *rest.items] == [waiting, cut, done]
    assert rest.next is None


def test_a_page_goes_on_where_the_last_one_ended_while_others_write(store: Store) -> None:
    made = [queued(store, seed // 3, seed=seed) for seed in range(9)]
    seen: list[str] = []
    after = None
    while True:
        with store.reading() as repos:
            page = repos.searches.list(after=after, limit=2)
        seen += [search.id for search in page.items]
        queued(store, 100 + len(seen), seed=100 + len(seen))
        after = page.next
        if after is None:
            break
    assert len(seen) == len(set(seen))
    assert set(seen) == {search.id for search in made}


def test_events_are_numbered_without_gaps_by_many_writers(store: Store) -> None:
    search = queued(store)

    def tell(turn: int) -> int:
        with store.writing() as repos:
            return repos.events.append(search.id, "progress", {"turn": turn}, later(turn))

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(tell, range(40)))
    assert sorted(numbers) == list(range(2, 42))
    with store.reading() as repos:
        last = repos.events.after(search.id, 40)
    assert [(event.kind, event.sequence) for event in last] == [("progress", 41)]
    assert last[0].search_id == search.id


def test_moments_keep_their_microseconds_and_their_zone(store: Store) -> None:
    moment = NOON + timedelta(microseconds=1)
    with store.writing() as repos:
        search, _ = repos.searches.add(new_search(SCENARIO), moment)
    assert search.created_at == moment
    assert search.created_at.utcoffset() == timedelta(0)
