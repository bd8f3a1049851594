"""Databases for tests: an SQLite file, and a PostgreSQL server that the tests start and stop themselves.

``store_url`` and ``store`` run a test on both. A test gets a database of its own, at the head; on PostgreSQL it is a
copy of a template, in memory where there is room, which takes some ten milliseconds. Without PostgreSQL the tests that
need it are skipped on a user's machine, and fail in CI.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from db.schema import upgrade
from db.store import Store
from db.urls import VARIABLE, database_url

if TYPE_CHECKING:
    import psycopg

BACKENDS = ("sqlite", "postgresql")
_USER = "planner"
_PASSWORD = "not-shown-anywhere"
_TEMPLATE = "planner_template"
_START_SECONDS = 60
_ROOM = 4 * 2**30
# However the tests end, also by kill -9: their end of the pipe closes, and the server and its folder go.
_UNTIL_STDIN_ENDS = """
home=$1; shift
"$@" & server=$!
read -r _
kill -QUIT $server
wait $server
rm -rf "$home"/*
"""


@dataclass(frozen=True, kw_only=True)
class PostgresServer:
    """A server on a free port of the loopback interface, with a template at the head."""

    port: int

    def url(self, name: str, password: str = _PASSWORD) -> str:
        """The URL of one of its databases."""
        return f"postgresql://{_USER}:{password}@127.0.0.1:{self.port}/{name}"

    def create(self, template: str = _TEMPLATE) -> str:
        """A new database; its URL."""
        name = f"test_{secrets.token_hex(6)}"
        self._administer(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        self._administer(f'DROP DATABASE IF EXISTS "{url.rpartition("/")[2]}" WITH (FORCE)')

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run one statement outside a transaction."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _administer(self, statement: str) -> None:
        """The same on a connection that is kept: to make one takes as long as to copy a database."""
        import psycopg

        try:
            self._connected().execute(statement.encode())
        except psycopg.OperationalError:
            # The server was restarted meanwhile.
            self.let_go()
            self._connected().execute(statement.encode())

    def _connected(self) -> psycopg.Connection:
        import psycopg

        if self.port not in _KEPT:
            _KEPT[self.port] = psycopg.connect(self.url("postgres"), autocommit=True)
        return _KEPT[self.port]

    def let_go(self) -> None:
        """Close the connection that is kept."""
        if self.port in _KEPT:
            _KEPT.pop(self.port).close()


_KEPT: dict[int, psycopg.Connection] = {}


def binaries() -> Path | None:
    """The folder of PostgreSQL's programs."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A server for as long as the block runs. It keeps nothing safe from a power cut, which makes it fast."""
    programs = binaries()
    if programs is None:
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL is not installed: no initdb on PATH or in /usr/lib/postgresql")
        pytest.skip("PostgreSQL is not installed")
    # Not in pytest's own folder: that is root's alone, and the server refuses to run as root.
    home = Path(tempfile.mkdtemp(prefix="planner-postgresql-", dir=_in_memory()))
    as_user = []
    if os.geteuid() == 0:
        shutil.chown(home, "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    try:
        secret = home / "password"
        secret.write_text(_PASSWORD, encoding="utf-8")
        secret.chmod(0o644)
        data = home / "data"
        initdb = [programs / "initdb", "--pgdata", data, "--username", _USER, "--pwfile", secret]
        _run(*as_user, *initdb, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync")
        with _started(as_user, programs, data, home) as server:
            server.execute(f'CREATE DATABASE "{_TEMPLATE}"')
            upgrade(database_url(server.url(_TEMPLATE)))
            yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _started(as_user: list[str], programs: Path, data: Path, home: Path) -> Iterator[PostgresServer]:
    port = _free_port()
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
        "max_connections": "200",
    }
    switches = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command = [*as_user, "sh", "-c", _UNTIL_STDIN_ENDS, "sh", home, programs / "postgres", "-D", data, *switches]
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            _wait_for(port, process, home / "server.log")
            server = PostgresServer(port=port)
            yield server
            server.let_go()
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=_START_SECONDS)


def _in_memory() -> Path | None:
    """A folder that lies in memory, if there is one with room: a thousand databases are made and removed in it."""
    folder = Path("/dev/shm")
    return folder if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ROOM else None


def _run(*command: str | Path) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_START_SECONDS)
    assert result.returncode == 0, result.stdout + result.stderr


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    server = PostgresServer(port=port)
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            server.execute("SELECT 1")
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL does not start: {log.read_text(encoding='utf-8', errors='replace')}")
            time.sleep(0.05)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this session, or of this worker of it."""
    with running_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database of its own on PostgreSQL, at the head."""
    url = postgres_server.create()
    yield url
    postgres_server.drop(url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file at the head."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    Store.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A database of its own on SQLite, at the head."""
    path = tmp_path / "planner.db"
    shutil.copy(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=BACKENDS)
def store_url(request: pytest.FixtureRequest) -> str:
    """A database of its own, on each of the two."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An open store, on each of the two."""
    with Store.open(store_url) as opened:
        yield opened


@pytest.fixture(scope="session", autouse=True)
def no_test_writes_into_the_users_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test stores without saying where lands in a folder of this session."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = f"sqlite:///{tmp_path_factory.mktemp('store') / 'planner.db'}"
    yield
    if before is None:
        del os.environ[VARIABLE]
    else:
        os.environ[VARIABLE] = before
