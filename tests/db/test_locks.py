"""Locks beside an SQLite file: one server, one upgrade at a time, none of it under a server, no waiting for ever."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from db.errors import StoreLocked, StoreServed, StoreUnavailable
from db.file_locks import try_to_hold
from db.revisions import HEAD, VERSION_TABLE
from db.store import Store
from planner.cli.main import run
from tests.db.samples import keep, scenario
from tests.db.scripts import python

SCENARIO = scenario()
OLD = Path(__file__).parent / "fixtures" / "0001.sqlite"


def test_one_server_per_file(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as first, Store.open(sqlite_url) as second:
        first.lock_for_serving()
        first.lock_for_serving()
        with pytest.raises(StoreLocked, match="PostgreSQL"):
            second.lock_for_serving()
        # Others still read and write: a command line beside the server, say.
        keep(second, SCENARIO)
        first.close()
        second.lock_for_serving()


def test_any_number_of_servers_on_postgresql(postgres_url: str) -> None:
    with Store.open(postgres_url) as first, Store.open(postgres_url) as second:
        first.lock_for_serving()
        second.lock_for_serving()


SERVES_UNTIL_KILLED = """
import sys, time
from db.store import Store
store = Store.open(sys.argv[1])
store.lock_for_serving()
print("serving", flush=True)
time.sleep(600)
"""


def test_a_server_that_is_killed_leaves_no_lock(sqlite_url: str) -> None:
    server = python(SERVES_UNTIL_KILLED, sqlite_url)
    assert server.stdout is not None
    assert server.stdout.readline() == "serving\n"
    with Store.open(sqlite_url) as store:
        with pytest.raises(StoreLocked):
            store.lock_for_serving()
        server.kill()
        server.communicate(timeout=30)
        store.lock_for_serving()


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    """A file that an older planner made."""
    return Path(shutil.copy(OLD, tmp_path / "old.db"))


def revision_in(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        (found,) = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    return str(found)


def test_a_file_is_not_upgraded_under_a_server(old_file: Path) -> None:
    # What the server of an older planner holds.
    lock = try_to_hold(old_file.with_name("old.db.serve.lock"))
    assert lock is not None
    with pytest.raises(StoreServed, match="stop the server first"):
        Store.open(f"sqlite:///{old_file}")
    assert revision_in(old_file) == "0001"
    os.close(lock)
    with Store.open(f"sqlite:///{old_file}") as store:
        assert store.revision() == HEAD
        # The upgrade kept nobody from serving.
        store.lock_for_serving()


def test_suggest_answers_beside_a_server_of_an_older_planner(
    old_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLANNER_DATABASE_URL", f"sqlite:///{old_file}")
    lock = try_to_hold(old_file.with_name("old.db.serve.lock"))
    assert lock is not None
    asked = "--model llama-3.1-8b --cluster dgx-h100 --devices 8 --global-batch-size 64 --seq-len 2048 --top 1"
    assert run(["suggest", *asked.split()]) == 0
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "warning: the answer is not stored" in told
    assert "stop the server first" in told
    assert run(["db", "upgrade"]) == 5
    assert revision_in(old_file) == "0001"
    os.close(lock)


HOLDS = """
import sys, time
from pathlib import Path
from db.file_locks import try_to_hold
held = try_to_hold(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_nobody_waits_for_ever_for_an_upgrade_that_hangs(old_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("db.sqlite_file._LOCK_SECONDS", 1)
    hangs = python(HOLDS, str(old_file.with_name("old.db.lock")))
    assert hangs.stdout is not None
    assert hangs.stdout.readline() == "held\n"
    hangs.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"old\.db\.lock.*hangs"):
        Store.open(f"sqlite:///{old_file}")
    assert 1 <= time.monotonic() - started < 8
    hangs.kill()
    hangs.communicate(timeout=30)
    Store.open(f"sqlite:///{old_file}").close()
