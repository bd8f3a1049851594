"""Databases that older planners left behind: upgraded, and all that they held is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from db.engine import engine_of
from db.revisions import HEAD, REVISIONS
from db.schema import check, upgrade
from db.store import Store
from db.urls import database_url
from tests.databases import PostgresServer
from tests.db.fixtures.make import CALIBRATION, FOLDER, MEASUREMENT, PLANS, RESULT, SCENARIO, STUDY, fill
from tests.db.samples import LEASE, NOON, later, result


def holds_everything(store: Store) -> None:
    """What ``fixtures.make`` wrote, as records of today."""
    with store.reading() as repos:
        assert repos.scenarios.get(SCENARIO.id) == SCENARIO
        assert repos.calibrations.get(CALIBRATION.id) == CALIBRATION
        assert repos.plans.of_search("1" * 32) == list(PLANS)
        assert repos.measurements.get(MEASUREMENT.id) == MEASUREMENT
        assert repos.studies.get(STUDY.id) == STUDY
        key = repos.api_keys.by_digest("a" * 64)
        assert key is not None
        assert (key.name, key.scopes) == ("scheduler", ("read",))
        done, cancelled, running = (repos.searches.get(str(number) * 32) for number in (1, 2, 3))
    assert done is not None
    assert cancelled is not None
    assert running is not None
    assert (done.state, done.status, done.best, done.details) == ("done", "optimal", 1.0, RESULT.details)
    assert (done.created_at, done.started_at, done.finished_at) == (NOON, later(1), later(2))
    assert (cancelled.state, cancelled.cancel_requested) == ("cancelled", True)
    assert (running.state, running.owner, running.lease_until) == ("running", "gone", later(30))


def goes_on(store: Store) -> None:
    """The search whose server is gone is taken up and finished."""
    with store.writing() as repos:
        claim = repos.searches.claim("new", later(60), later(60) + LEASE, 3)
        assert claim is not None
        assert claim.id == "3" * 32
        assert repos.searches.finish(claim.id, "new", claim.attempt, result(SCENARIO), later(61))


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_file_of_every_revision_is_kept(revision: str) -> None:
    assert (FOLDER / f"{revision}.sqlite").exists(), "python -m tests.db.fixtures.make"


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_old_file_is_upgraded_when_it_is_opened(revision: str, tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    shutil.copy(FOLDER / f"{revision}.sqlite", path)
    with Store.open(f"sqlite:///{path}") as store:
        assert store.revision() == HEAD
        holds_everything(store)
        goes_on(store)
        assert check(store.database) == []


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_old_postgresql_is_upgraded(revision: str, postgres_server: PostgresServer) -> None:
    url = postgres_server.create(template="template0")
    database = database_url(url)
    try:
        assert upgrade(database, revision) == (None, revision)
        engine = engine_of(database)
        with engine.begin() as connection:
            fill(connection)
        engine.dispose()
        assert upgrade(database) == (revision, HEAD)
        assert upgrade(database) == (HEAD, HEAD)
        with Store.open(url) as store:
            holds_everything(store)
            goes_on(store)
            assert check(store.database) == []
    finally:
        postgres_server.drop(url)


def test_the_events_of_old_searches_are_told_by_their_moments(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    shutil.copy(FOLDER / "0001.sqlite", path)
    with Store.open(f"sqlite:///{path}") as store, store.reading() as repos:
        told = {
            number: [(event.kind, event.sequence, event.created_at) for event in repos.events.after(str(number) * 32)]
            for number in (1, 2, 3)
        }
    assert told == {
        1: [("queued", 1, NOON), ("running", 2, later(1)), ("done", 3, later(2))],
        2: [("queued", 1, NOON), ("cancelled", 2, later(3))],
        3: [("queued", 1, NOON), ("running", 2, later(4))],
    }
