"""Measurements, studies, keys of the API and of requests, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from costmodel.errors import InvalidInput
from db.records import ApiKey, Claimed, StoredResponse, Study
from db.store import Store
from tests.db.samples import NOON, keep, later, measurement, new_id, plan, scenario

SCENARIO = scenario()
OTHER = scenario(batch=128)
ONE, TWO = plan(SCENARIO, 1), plan(OTHER, 2)
RESPONSE = StoredResponse(status_code=202, headers={"Location": "/v1/searches/1"}, body='{"id": "1"}')


@pytest.fixture
def filled(store: Store) -> Store:
    keep(store, SCENARIO, OTHER)
    with store.writing() as repos:
        repos.plans.put([ONE, TWO])
    return store


def test_measurements_are_kept_and_found(filled: Store) -> None:
    first = measurement(ONE)
    second = measurement(TWO, status="out_of_memory", step_time_s=None, job_id="4712", created_at=later(1))
    with filled.writing() as repos:
        assert repos.measurements.add(first) == first
        repos.measurements.add(second)
    with filled.reading() as repos:
        assert repos.measurements.get(first.id) == first
        assert list(repos.measurements.list(limit=5).items) == [second, first]
        assert list(repos.measurements.list(plan_id=ONE.id, limit=5).items) == [first]
        assert list(repos.measurements.list(scenario_id=OTHER.id, limit=5).items) == [second]
        assert list(repos.measurements.list(job_id="4711", limit=5).items) == [first]
        assert list(repos.measurements.list(status="out_of_memory", limit=5).items) == [second]
        page = repos.measurements.list(limit=1)
        assert list(repos.measurements.list(after=page.next, limit=1).items) == [first]


def test_a_measurement_of_an_unknown_plan_is_refused(filled: Store) -> None:
    with pytest.raises(InvalidInput, match="plan_id"), filled.writing() as repos:
        repos.measurements.add(measurement(ONE, plan_id="f" * 32))
    with pytest.raises(InvalidInput, match="study_id"), filled.writing() as repos:
        repos.measurements.add(measurement(ONE, study_id="f" * 32, trial_number=0))


def test_of_several_measurements_of_a_trial_the_first_counts(filled: Store) -> None:
    study = Study(
        id=new_id(), name="around the best", scenario_id=SCENARIO.id, search_id=None, created_by=None, created_at=NOON
    )
    with filled.writing() as repos:
        repos.studies.add(study)

    def report(turn: int) -> str:
        one = measurement(ONE, study_id=study.id, trial_number=7, steps=turn)
        with filled.writing() as repos:
            return repos.measurements.add(one).id

    with ThreadPoolExecutor(8) as pool:
        told = set(pool.map(report, range(16)))
    with filled.reading() as repos:
        (kept,) = repos.measurements.list(limit=50).items
    assert told == {kept.id}


def test_studies_have_names_of_their_own(filled: Store) -> None:
    study = Study(id=new_id(), name="one", scenario_id=SCENARIO.id, search_id=None, created_by="ci", created_at=NOON)
    with filled.writing() as repos:
        repos.studies.add(study)
    with pytest.raises(InvalidInput, match="name"), filled.writing() as repos:
        repos.studies.add(replace(study, id=new_id()))
    with filled.reading() as repos:
        assert repos.studies.get(study.id) == study
        assert list(repos.studies.list(None, 5).items) == [study]


def key(name: str = "scheduler", **how: object) -> ApiKey:
    return replace(
        ApiKey(
            id=new_id(),
            name=name,
            scopes=("read", "write"),
            created_at=NOON,
            expires_at=NOON + timedelta(days=30),
            revoked_at=None,
            last_used_at=None,
        ),
        **how,
    )


def test_a_key_is_known_by_the_digest_of_its_secret(store: Store) -> None:
    one = key()
    with store.writing() as repos:
        repos.api_keys.add(one, "a" * 64)
        repos.api_keys.add(key("another"), "b" * 64)
        repos.api_keys.touch(one.id, later(5))
    with store.reading() as repos:
        assert repos.api_keys.by_digest("a" * 64) == replace(one, last_used_at=later(5))
        assert repos.api_keys.by_digest("c" * 64) is None
        assert [found.name for found in repos.api_keys.list()] == ["another", "scheduler"]


def test_a_revoked_key_stays_and_keeps_its_name(store: Store) -> None:
    with store.writing() as repos:
        repos.api_keys.add(key(), "a" * 64)
        assert repos.api_keys.revoke("scheduler", later(1))
        assert not repos.api_keys.revoke("scheduler", later(2))
        assert not repos.api_keys.revoke("nobody", later(2))
        found = repos.api_keys.by_digest("a" * 64)
        assert found is not None
        assert found.revoked_at == later(1)
    with pytest.raises(InvalidInput, match="name"), store.writing() as repos:
        repos.api_keys.add(key(), "d" * 64)


def claim(store: Store, holder: str, second: float = 0, body: str = "a" * 64, request: str = "POST /v1") -> Claimed:
    now = later(second)
    with store.writing() as repos:
        return repos.idempotency.claim(
            "ci", "k1", request, body, holder, now, now - timedelta(seconds=60), now - timedelta(days=1)
        )


def test_a_request_is_carried_out_once_and_answered_again(store: Store) -> None:
    assert claim(store, "h1").outcome == "started"
    assert claim(store, "h2", 1).outcome == "in_progress"
    with store.writing() as repos:
        assert repos.idempotency.complete("ci", "k1", "h1", RESPONSE)
    again = claim(store, "h3", 2)
    assert (again.outcome, again.response) == ("answered", RESPONSE)
    assert claim(store, "h4", 3, body="b" * 64).outcome == "other_body"
    assert claim(store, "h4", 3, request="POST /v2").outcome == "other_body"


def test_of_many_at_once_one_is_carried_out(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda turn: claim(store, f"h{turn}").outcome, range(24)))
    assert sorted(outcomes) == ["in_progress"] * 23 + ["started"]


def test_a_request_whose_server_died_is_taken_over(store: Store) -> None:
    claim(store, "h1")
    assert claim(store, "h2", 61).outcome == "started"
    with store.writing() as repos:
        assert not repos.idempotency.complete("ci", "k1", "h1", RESPONSE)
        repos.idempotency.forget("ci", "k1", "h1")
    assert claim(store, "h3", 62).outcome == "in_progress"
    with store.writing() as repos:
        assert repos.idempotency.complete("ci", "k1", "h2", RESPONSE)


def test_a_request_that_came_to_nothing_is_carried_out_again(store: Store) -> None:
    claim(store, "h1")
    with store.writing() as repos:
        repos.idempotency.forget("ci", "k1", "h1")
    assert claim(store, "h2", 1).outcome == "started"


def test_keys_expire(store: Store) -> None:
    claim(store, "h1")
    with store.writing() as repos:
        repos.idempotency.complete("ci", "k1", "h1", RESPONSE)
    day = 24 * 3600.0
    assert claim(store, "h2", day + 1, body="b" * 64).outcome == "started"
    with store.writing() as repos:
        assert repos.idempotency.purge(later(day)) == 0
        assert repos.idempotency.purge(later(day + 2)) == 1


def test_keys_are_each_principals_own(store: Store) -> None:
    claim(store, "h1")
    with store.writing() as repos:
        other = repos.idempotency.claim("somebody", "k1", "POST /v1", "b" * 64, "h2", NOON, later(-60), later(-90))
    assert other.outcome == "started"
