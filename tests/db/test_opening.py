"""Opening a store: which database, who may read it, and one line for everything that stands in the way."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from sqlalchemy.exc import TimeoutError

from db.engine import engine_of, for_reading
from db.errors import StoreUnavailable
from db.repositories import Repositories
from db.revisions import HEAD
from db.store import Store
from db.urls import VARIABLE, database_url, default_path
from tests.databases import PostgresServer
from tests.db.samples import NOON, keep, plan, result, scenario
from tests.db.scripts import python

SCENARIO = scenario()


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "planner.db"
    with Store.open(f"sqlite:///{path}") as store:
        keep(store, SCENARIO)
        assert store.backend == "sqlite"
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes["planner.db"] == modes["planner.db-wal"] == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_many_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'planner.db'}"
    script = "import sys; from db.store import Store; print(Store.open(sys.argv[1]).revision())"
    started = [python(script, url) for _ in range(6)]
    told = [process.communicate(timeout=60) for process in started]
    assert told == [(f"{HEAD}\n", "")] * 6


def _a_folder(path: Path) -> None:
    path.mkdir()


def _text(path: Path) -> None:
    path.write_text("This is no database. " * 200, encoding="utf-8")


def _of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")


@pytest.mark.parametrize("make", [_a_folder, _text, _of_another_program])
def test_a_file_that_is_no_store_is_told_in_a_line_and_left_alone(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "x.db"
    make(path)
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(StoreUnavailable) as told:
        Store.open(f"sqlite:///{path}")
    assert "\n" not in str(told.value)
    assert str(path) in str(told.value)
    assert before is None or path.read_bytes() == before


def test_a_folder_that_can_not_be_made_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreUnavailable, match=r"/file$"):
        Store.open(f"sqlite:///{tmp_path / 'file' / 'x.db'}")


def test_a_full_disk_is_told_in_a_line_and_keeps_what_was_there(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        keep(store, SCENARIO)
        # The one connection of the pool; SQLite says the same of a file that may not grow and of a full disk.
        with store.writing() as repos:
            pages = repos.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            repos.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreUnavailable, match="full"), store.writing() as repos:
            repos.plans.put([plan(SCENARIO, tp) for tp in range(1, 500)])
        with store.reading() as repos:
            assert repos.scenarios.get(SCENARIO.id) == SCENARIO
            assert repos.plans.get(plan(SCENARIO, 1).id) is None


def test_what_only_reads_can_not_write(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match=r"(?i)read-?only"), store.reading() as repos:
        repos.scenarios.put(SCENARIO, NOON)
    keep(store, SCENARIO)


def test_a_reader_sees_one_state(store: Store) -> None:
    with store.reading() as before:
        assert before.scenarios.get(SCENARIO.id) is None
        keep(store, SCENARIO)
        assert before.scenarios.get(SCENARIO.id) is None
    with store.reading() as after:
        assert after.scenarios.get(SCENARIO.id) == SCENARIO


WRITES_UNTIL_KILLED = """
import sys
from db.store import Store
from tests.db.samples import keep, later, new_search, result, scenario
store = Store.open(sys.argv[1])
keep(store, scenario())
number = 0
while True:
    number += 1
    with store.writing() as repos:
        repos.searches.store_answer(new_search(scenario(), seed=number), result(scenario()), later(number))
    print(number, flush=True)
"""


@pytest.mark.parametrize("after", [0.05, 0.2, 0.5])
def test_what_was_told_is_there_after_a_kill_in_the_middle_of_a_write(store_url: str, after: float) -> None:
    writer = python(WRITES_UNTIL_KILLED, store_url)
    assert writer.stdout is not None
    first = writer.stdout.readline()
    time.sleep(after)
    writer.kill()
    # Not by communicate(), which passes over what was read ahead together with the first line.
    told = [first, *writer.stdout.read().splitlines()]
    writer.communicate(timeout=30)
    with Store.open(store_url) as store:
        with store.reading() as repos:
            searches = repos.searches.list(limit=100_000).items
            for search in searches:
                # A whole answer: its plans in their order, and the event that tells of it.
                assert search.state == "done"
                assert repos.plans.of_search(search.id) == result(SCENARIO).plans
                assert [event.kind for event in repos.events.after(search.id)] == ["done"]
        assert {search.seed for search in searches} >= {int(number) for number in told}
        assert len(searches) <= len(told) + 1
        keep(store, scenario(batch=256))


def test_the_caches_of_all_connections_are_bounded(sqlite_url: str) -> None:
    engine = engine_of(database_url(sqlite_url))
    engine.pool._timeout = 0.1  # type: ignore[attr-defined]
    readers, opened = for_reading(engine), []
    with ExitStack() as used:
        with suppress(TimeoutError):
            while True:
                opened.append(used.enter_context(readers.connect()))
        (kib,) = {-one.exec_driver_sql("PRAGMA cache_size").scalar_one() for one in opened}
    engine.dispose()
    assert len(opened) >= 16
    assert kib * len(opened) <= 256 * 1024


def test_a_server_that_is_not_there_is_told_in_a_line() -> None:
    started = time.monotonic()
    with pytest.raises(StoreUnavailable) as told:
        Store.open("postgresql://planner:hush-hush@127.0.0.1:1/planner")
    assert time.monotonic() - started < 10
    assert "\n" not in str(told.value)
    assert "hush-hush" not in str(told.value)
    assert "postgresql://planner:***@127.0.0.1:1/planner" in str(told.value)


def test_a_wrong_password_is_told_without_it(postgres_server: PostgresServer, postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    with pytest.raises(StoreUnavailable, match="authentication failed") as told:
        Store.open(postgres_server.url(name, password="hush-hush"))
    assert "hush-hush" not in str(told.value)


def test_a_lost_connection_is_told_and_the_next_one_works(postgres_server: PostgresServer, postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    with Store.open(postgres_url) as store:
        with pytest.raises(StoreUnavailable), store.writing() as repos:
            _write_while(repos, lambda: postgres_server.execute(cut))
        store.ping()
        postgres_server.execute(cut)
        keep(store, SCENARIO)


def _write_while(repos: Repositories, happens: Callable[[], None]) -> None:
    repos.scenarios.put(SCENARIO, NOON)
    happens()
    repos.scenarios.put(scenario(batch=256), NOON)


def test_a_database_that_is_gone_is_told_by_ping(postgres_server: PostgresServer) -> None:
    url = postgres_server.create()
    with Store.open(url) as store:
        store.ping()
        postgres_server.drop(url)
        with pytest.raises(StoreUnavailable, match="does not exist"):
            store.ping()


def test_opening_a_store_does_without_alembic(sqlite_url: str) -> None:
    script = "import sys; from db.store import Store; Store.open(sys.argv[1]); print('alembic' in sys.modules)"
    Store.open(sqlite_url).close()
    assert python(script, sqlite_url).communicate(timeout=60) == ("False\n", "")


def test_without_its_driver_postgresql_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from db.store import Store\nfrom db.errors import StoreUnavailable\n"
        "try:\n    Store.open('postgresql://u@h/d')\nexcept StoreUnavailable as error:\n    print(error)"
    )
    told, complaints = python(script).communicate(timeout=60)
    assert "parallelism-planner[postgres]" in told
    assert complaints == ""


def test_the_users_own_settings_of_a_connection_are_kept(postgres_url: str) -> None:
    url = f"{postgres_url}?options=-c%20statement_timeout%3D1234&application_name=mine"
    with Store.open(url) as store, store.reading() as repos:
        told = [
            repos.connection.exec_driver_sql(f"SHOW {name}").scalar_one()
            for name in ("statement_timeout", "application_name", "idle_in_transaction_session_timeout")
        ]
    assert told == ["1234ms", "mine", "1min"]


def test_tests_do_not_write_into_the_users_data() -> None:
    assert "planner.db" in os.environ[VARIABLE]
    assert database_url().path != default_path()
