"""The schema: what the migrations make is what the tables say, and ``check`` finds what is wrong."""

from __future__ import annotations

import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

from db.engine import engine_of
from db.errors import SchemaAhead, SchemaBehind, StoreUnavailable
from db.revisions import HEAD, REVISIONS, VERSION_TABLE
from db.schema import check, config_for, upgrade
from db.store import Store
from db.urls import database_url
from tests.databases import PostgresServer
from tests.db.samples import keep, plan, scenario

SCENARIO = scenario()


def execute(store: Store, statement: str) -> None:
    engine = engine_of(store.database, for_upgrade=True)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_the_list_of_revisions_is_that_of_the_files(store: Store) -> None:
    with store.reading() as repos:
        script = ScriptDirectory.from_config(config_for(repos.connection))
    assert tuple(reversed([found.revision for found in script.walk_revisions()])) == REVISIONS
    assert script.get_current_head() == HEAD


def test_a_fresh_database_is_what_the_tables_say(store: Store) -> None:
    assert check(store.database, contents=True) == []


ALIVE = "CREATE UNIQUE INDEX uq_searches_alive ON searches (key, seed, max_seconds)"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (f"DROP INDEX uq_searches_alive; {ALIVE}", "uq_searches_alive is over all rows, not rows with state IN"),
        (f"DROP INDEX uq_searches_alive; {ALIVE} WHERE state = 'queued'", "uq_searches_alive is over rows with"),
        ("DROP INDEX ix_plans_mfu_id", "ix_plans_mfu_id"),
        ("ALTER TABLE measurements ADD COLUMN more TEXT", "more"),
        ("DROP TABLE idempotency_keys", "idempotency_keys"),
    ],
)
def test_a_schema_that_somebody_changed_is_noticed(store: Store, statement: str, told: str) -> None:
    for part in statement.split(";"):
        execute(store, part)
    problems = check(store.database)
    assert problems
    assert told in problems[0]


def test_a_check_that_somebody_dropped_is_noticed(postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        execute(store, "ALTER TABLE searches DROP CONSTRAINT ck_searches_state")
        (told,) = check(store.database)
        assert "check ck_searches_state of searches is gone" in told
        execute(store, "ALTER TABLE searches ADD CONSTRAINT ck_searches_state CHECK (state IN ('queued', 'done'))")
        (told,) = check(store.database)
        assert "check ck_searches_state of searches is " in told


def test_tables_of_others_are_no_drift(store: Store) -> None:
    execute(store, "CREATE TABLE alembic_version (version_num TEXT)")
    execute(store, "INSERT INTO alembic_version VALUES ('of optuna')")
    assert check(store.database) == []
    assert store.revision() == HEAD


def test_a_row_that_points_nowhere_is_noticed(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        execute(store, "INSERT INTO search_events VALUES ('f', 1, 'queued', '{}', '2026-01-01 00:00:00.000000')")
        assert check(store.database) == ["a row of search_events points at a row of searches that is gone"]


def test_a_damaged_file_is_noticed(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        keep(store, SCENARIO)
        with store.writing() as repos:
            repos.plans.put([plan(SCENARIO, tp) for tp in range(1, 200)])
        database = store.database
    assert database.path is not None
    with database.path.open("r+b") as file:
        file.seek(database.path.stat().st_size // 2)
        file.write(b"\xff" * 8192)
    try:
        problems = check(database)
    except StoreUnavailable as error:
        problems = [error.reason]
    assert any("malformed" in line or "damaged" in line for line in problems)


def test_a_file_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    database = database_url(f"sqlite:///{tmp_path / 'none.db'}")
    (told,) = check(database)
    assert "there is no file" in told
    assert list(tmp_path.iterdir()) == []


def test_postgresql_is_only_upgraded_when_somebody_asks(postgres_server: PostgresServer) -> None:
    url = postgres_server.create(template="template0")
    try:
        with pytest.raises(SchemaBehind, match=r"no tables yet.*planner db upgrade"):
            Store.open(url)
        (told,) = check(database_url(url))
        assert "planner db upgrade" in told
        upgrade(database_url(url), "0001")
        with pytest.raises(SchemaBehind, match="revision 0001"):
            Store.open(url)
        (told,) = check(database_url(url))
        assert "0001" in told
    finally:
        postgres_server.drop(url)


def test_many_upgrades_at_once_are_one(postgres_server: PostgresServer) -> None:
    url = postgres_server.create(template="template0")
    try:
        with ThreadPoolExecutor(6) as pool:
            done = list(pool.map(lambda _: upgrade(database_url(url)), range(6)))
        assert sorted(done, key=str) == sorted([(None, HEAD)] + [(HEAD, HEAD)] * 5, key=str)
    finally:
        postgres_server.drop(url)


def test_a_database_of_a_newer_planner_is_left_alone(store: Store, store_url: str) -> None:
    execute(store, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(SchemaAhead, match=r"9999.*newer planner"):
        Store.open(store_url)
    with pytest.raises(SchemaAhead, match="9999"):
        upgrade(store.database)
    (told,) = check(store.database)
    assert "a newer planner wrote it" in told
    assert "planner db upgrade" not in told


def test_the_file_of_another_program_is_said_to_be_that(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    (told,) = check(database_url(f"sqlite:///{path}"))
    assert "the tables of another program" in told
    assert "planner db upgrade" not in told


def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    shutil.copy(Path(__file__).parent / "fixtures" / "0001.sqlite", path)
    with closing(sqlite3.connect(path)) as connection:
        # In the way of what the upgrade creates last but one.
        connection.execute("ALTER TABLE measurements ADD COLUMN log_tail TEXT")
    with pytest.raises(StoreUnavailable, match="log_tail"):
        Store.open(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        (revision,) = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    assert "search_events" not in tables
    assert revision == "0001"
