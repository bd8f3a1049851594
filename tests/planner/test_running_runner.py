"""Runners on a real store: searches that are queued are answered, whatever happens to workers, runners or the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from costmodel.errors import InvalidInput
from db.errors import StoreUnavailable
from db.records import Search, SearchResult
from db.repositories import Repositories
from db.store import Store
from planner import service
from planner.running.job import Job, SearchJob
from planner.running.runner import Runner
from planner.search.answer import answer_to
from planner.search.request import SearchRequest
from planner.stored.answers import stored_answer
from planner.stored.questions import stored_request
from planner.stored.records import result_of
from tests.databases import PostgresServer
from tests.processes import eventually
from tests.running_jobs import Break, Die, Echo, Wait
from tests.scenarios import scenario_of
from tests.searches import request_of

MANY_S = 30.0


def small(seed: int = 0, **how: Any) -> SearchRequest:
    """Every seed is another search."""
    return request_of(scenario_of("llama-3.1-8b", "dgx-h100", 16, 32, 4096), seed=seed, **how)


def ask(store: Store, seed: int = 0) -> str:
    return service.ask(store, small(seed, max_seconds=20.0), now=datetime.now(UTC)).search.id


def search_of(store: Store, search_id: str) -> Search:
    with store.reading() as repos:
        found = repos.searches.get(search_id)
    assert found is not None
    return found


def events_of(store: Store, search_id: str) -> list[str]:
    with store.reading() as repos:
        return [event.kind for event in repos.events.after(search_id, 0)]


def said(_: Search, answer: Any) -> SearchResult:
    """The result of a job of the tests."""
    return SearchResult(
        status="infeasible",
        best=None,
        bound=None,
        gap=None,
        proven_top_k=False,
        plans_within=0,
        elapsed_s=0.0,
        details={"said": answer["value"] if isinstance(answer, dict) else answer},
        plans=(),
    )


@contextmanager
def running(store: Store, work_of: Callable[[Search], Job], **how: Any) -> Iterator[Runner]:
    runner = Runner(store, work_of, said, **{"slots": 1, "poll_s": 0.1, "renew_s": 0.1, "name": "test"} | how)
    runner.start()
    try:
        yield runner
    finally:
        runner.close()


def soon(true: Callable[[], bool]) -> bool:
    return eventually(true, MANY_S)


def ended(store: Store, search_id: str) -> Search:
    assert soon(lambda: search_of(store, search_id).state not in ("queued", "running"))
    return search_of(store, search_id)


# -- answers ---------------------------------------------------------------------------------------------------------


def test_a_queued_search_is_answered_as_it_is_here(store: Store) -> None:
    def work_of(search: Search) -> Job:
        with store.reading() as repos:
            return SearchJob(request=stored_request(repos, search))

    expected = answer_to(small())
    search_id, told = service.ask(store, small(), now=datetime.now(UTC)).search.id, []
    runner = Runner(store, work_of, lambda _, answer: result_of(answer, datetime.now(UTC)), slots=1)
    runner.subscribe(told.append)
    runner.start()
    try:
        assert ended(store, search_id).state == "done"
    finally:
        runner.close()
    with store.reading() as repos:
        answer = stored_answer(repos, search_of(store, search_id))
    assert answer["plans"] == expected["plans"]
    assert (answer["status"], answer["best"], answer["bound"]) == ("optimal", expected["best"], expected["bound"])
    kinds = ["queued", "running", "candidates", "relaxed", "incumbents", "listed", "done"]
    assert events_of(store, search_id) == kinds
    assert told == [search_id] * (len(kinds) - 1)


def test_a_search_queued_here_does_not_wait_for_the_next_look(store: Store) -> None:
    with running(store, lambda search: Echo(value=search.seed), poll_s=60.0) as runner:
        assert soon(lambda: runner.ready)
        first = ask(store, 1)
        runner.wake()
        assert ended(store, first).details == {"said": 1}


def test_each_slot_runs_a_search_of_its_own(store: Store) -> None:
    searches = [ask(store, seed) for seed in range(2)]
    with running(store, lambda _: Wait(seconds=60.0), slots=2) as runner:
        assert soon(lambda: runner.running == 2)
        assert {search_of(store, one).owner for one in searches} == {runner.owner}
        assert runner.owner.startswith("test-")


# -- ends that are no answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("job", "slug"), [(Die(), "worker-lost"), (Break(), "unexpected-error")])
def test_a_job_that_dies_fails_its_search_and_the_next_one_runs(store: Store, job: Any, slug: str) -> None:
    first, second = ask(store, 1), ask(store, 2)
    with running(store, lambda search: job if search.seed == 1 else Echo(value="ok")):
        failed = ended(store, first)
        assert ended(store, second).details == {"said": "ok"}
    assert (failed.state, failed.attempt) == ("failed", 1)
    assert failed.problem is not None
    assert failed.problem["type"] == slug


def test_a_search_that_no_job_can_be_made_of_fails_with_the_field(store: Store) -> None:
    def work_of(search: Search) -> Job:
        raise InvalidInput("model", "gone", "ask for another one")

    search_id = ask(store)
    with running(store, work_of):
        problem = ended(store, search_id).problem
    assert problem is not None
    assert (problem["type"], problem["field"]) == ("invalid-input", "model")


def test_a_cancel_reaches_the_worker(store: Store) -> None:
    search_id = ask(store)
    with running(store, lambda _: Wait(seconds=60.0), renew_s=60.0, lease_s=300.0) as runner:
        assert soon(lambda: "begun" in events_of(store, search_id))
        with store.writing() as repos:
            repos.searches.request_cancel(search_id, datetime.now(UTC))
        runner.wake()
        asked = time.monotonic()
        assert ended(store, search_id).state == "cancelled"
        assert time.monotonic() - asked < 3.0
        assert soon(lambda: runner.running == 0)


# -- runners that freeze, close or die -------------------------------------------------------------------------------


def test_who_was_frozen_past_his_lease_does_not_overwrite_what_others_wrote(store: Store) -> None:
    """One that never renews is to everybody else a frozen one, until its job is done and it writes."""
    search_id = ask(store)
    frozen = Runner(store, lambda _: Wait(seconds=2.5), said, slots=1, poll_s=60.0, lease_s=0.5, renew_s=60.0)
    frozen.start()
    try:
        assert soon(lambda: search_of(store, search_id).state == "running")
        with running(store, lambda _: Echo(value="awake"), lease_s=30.0):
            answered = ended(store, search_id)
        assert soon(lambda: not frozen.running)
    finally:
        frozen.close()
    after = search_of(store, search_id)
    assert after == answered
    assert (after.attempt, after.details) == (2, {"said": "awake"})
    assert events_of(store, search_id).count("done") == 1


def test_closing_puts_running_searches_back_and_another_runner_takes_them(store: Store) -> None:
    search_id = ask(store)
    with running(store, lambda _: Wait(seconds=60.0)) as runner:
        assert soon(lambda: "begun" in events_of(store, search_id))
        started = time.monotonic()
        runner.close()
        assert time.monotonic() - started < 3.0
    put_back = search_of(store, search_id)
    assert (put_back.state, put_back.owner) == ("queued", None)
    with running(store, lambda _: Echo(value="other")):
        assert ended(store, search_id).details == {"said": "other"}


def test_closing_with_patience_lets_a_search_finish(store: Store) -> None:
    first, second = ask(store, 1), ask(store, 2)
    with running(store, lambda search: Wait(seconds=1.0) if search.seed == 1 else Echo(value=2)) as runner:
        assert soon(lambda: "begun" in events_of(store, first))
        runner.close(grace_s=MANY_S)
    assert search_of(store, first).details == {"said": "waited"}
    assert search_of(store, second).state == "queued"


def test_a_search_that_every_owner_dies_of_is_given_up(store: Store) -> None:
    search_id = ask(store)
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    for owner in "abc":
        with store.writing() as repos:
            assert repos.searches.claim(owner, long_ago, long_ago + timedelta(seconds=1), 3) is not None
        long_ago += timedelta(minutes=1)
    with running(store, lambda _: Echo(value="late")):
        failed = ended(store, search_id)
    assert failed.problem is not None
    assert (failed.state, failed.problem["type"]) == ("failed", "search-lost")


# -- a store that goes away ------------------------------------------------------------------------------------------


class Away(Store):
    """A store that can't be written for as long as somebody says so."""

    gone = False
    refused = 0

    @contextmanager
    def writing(self) -> Iterator[Repositories]:
        if self.gone:
            self.refused += 1
            raise StoreUnavailable(self.shown_url, "it restarts")
        with super().writing() as repos:
            yield repos


def test_a_store_that_restarts_loses_no_answer(sqlite_url: str) -> None:
    """It goes away in the middle of a search, and is back only after the search wanted to be stored."""
    with Away.open(sqlite_url) as store:
        search_id = ask(store)
        with running(store, lambda _: Wait(seconds=1.0), lease_s=60.0) as runner:
            assert soon(lambda: "begun" in events_of(store, search_id))
            store.gone = True
            time.sleep(2.0)
            assert store.refused > 3
            store.gone = False
            assert ended(store, search_id).state == "done"
            later = ask(store, 1)
            runner.wake()
            assert ended(store, later).state == "done"


def test_connections_that_break_in_the_middle_of_a_search_lose_no_answer(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    with Store.open(postgres_url) as store:
        search_id = ask(store)
        with running(store, lambda _: Wait(seconds=1.0)):
            assert soon(lambda: "begun" in events_of(store, search_id))
            name = postgres_url.rpartition("/")[2]
            postgres_server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            # Asked over connections that are not broken.
            with Store.open(postgres_url) as other:
                assert ended(other, search_id).details == {"said": "waited"}
