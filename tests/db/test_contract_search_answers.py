"""Answers and lists of searches, on both databases: found again, told of, in order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from db.records import Search
from db.store import Store
from tests.db.samples import NOON, keep, later, new_search, other_calibration, result, scenario
from tests.db.searching import SCENARIO, queued


@pytest.fixture(autouse=True)
def _known(store: Store) -> None:
    keep(store, SCENARIO)


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


def test_many_questions_stand_as_answered_on_their_way_or_over(store: Store) -> None:
    keys = {name: digit * 32 for name, digit in zip(("proven", "cut", "live", "failed", "other"), "12345", strict=True)}
    with store.writing() as repos:
        cut = result(SCENARIO, status="feasible", proven_top_k=False)
        proven = repos.searches.store_answer(new_search(SCENARIO, key=keys["proven"], seed=9), result(SCENARIO), NOON)
        repos.searches.add(new_search(SCENARIO, key=keys["proven"]), later(1))
        shorter = new_search(SCENARIO, key=keys["cut"], max_seconds=1.0)
        repos.searches.store_answer(shorter, cut, later(1))
        long_enough = repos.searches.store_answer(new_search(SCENARIO, key=keys["cut"]), cut, later(2))
        live, _ = repos.searches.add(new_search(SCENARIO, key=keys["live"]), later(3))
        failed, _ = repos.searches.add(new_search(SCENARIO, key=keys["failed"]), later(4))
        repos.searches.request_cancel(failed.id, later(5))
        repos.searches.add(new_search(SCENARIO, key=keys["other"], seed=9), later(6))
    with store.reading() as repos:
        standing = repos.searches.standing([*keys.values(), "6" * 32], live.seed, live.max_seconds)
        best = repos.plans.best_of([search.id for search in standing.values()])
        assert standing[keys["failed"]].state == "cancelled"
        ranked = repos.plans.of_search(proven.id)
    assert {key: search.id for key, search in standing.items()} == {
        keys["proven"]: proven.id,
        keys["cut"]: long_enough.id,
        keys["live"]: live.id,
        keys["failed"]: failed.id,
    }
    assert best[proven.id] == ranked[0]
    assert set(best) == {proven.id, long_enough.id}


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
        assert list(repos.searches.list(model="MIXTRAL", cluster="gx-B", parts=True, limit=10).items) == [done]
        assert list(repos.searches.list(model="mixtral", limit=10).items) == []
        # Neither of these stands for any other text.
        assert [repos.searches.list(model=name, parts=True, limit=10).items for name in ("m%x", "mixtral_8")] == [
            [],
            [],
        ]
        assert list(repos.searches.list(since=later(1), limit=10).items) == [waiting, cut]
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
