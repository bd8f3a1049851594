"""The database goes away under a server, or its disk is full: that is said, and passes by itself."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.databases import PostgresServer, binaries, running_server
from tests.e2e.audit import wrong_with
from tests.e2e.servers import MEDIUM, SMALL, Server, lasting, serving
from tests.processes import eventually

pytestmark = pytest.mark.slow

_PATIENCE_S = 30.0


def test_postgresql_that_is_restarted_is_missed_and_found_again(tmp_path: Path) -> None:
    with running_server() as postgresql:
        url = postgresql.create()
        with serving(url, tmp_path) as server:
            search_id = server.ask(SMALL, wait=60).json()["id"]
            going_on = server.ask(lasting(6)).json()["id"]
            assert eventually(lambda: server.state(going_on) == "running", _PATIENCE_S)
            with stopped(postgresql):
                assert status_of(server, "/healthz") == 200
                assert status_of(server, "/readyz") == 503
                refused = server.client.get("/v1/plans")
                assert (refused.status_code, refused.json()["type"]) == (503, "store-unavailable")
                assert refused.headers["Content-Type"] == "application/problem+json"
                assert "Retry-After" in refused.headers
                assert server.ask(SMALL).status_code == 503
            assert eventually(lambda: status_of(server, "/readyz") == 200, _PATIENCE_S)
            assert server.ask(SMALL).json()["id"] == search_id
            # Its answer was kept while there was nowhere to write it, or it is searched again.
            assert server.finished(going_on)["state"] == "done"
            assert server.ask(SMALL | {"devices": 32}, wait=60).json()["status"] == "optimal"
            assert server.tracebacks() == []
        assert wrong_with(url) == []


def status_of(server: Server, path: str) -> int:
    return server.client.get(path).status_code


@contextmanager
def stopped(postgresql: PostgresServer) -> Iterator[None]:
    """Without that PostgreSQL for the block, as in a restart for an update."""
    with psycopg.connect(postgresql.url("postgres")) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    data, programs = Path(row[0]), binaries()
    assert programs is not None
    postmaster = (data / "postmaster.pid").read_text(encoding="utf-8").split()[0]
    _, *options = Path(f"/proc/{postmaster}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    control = [*as_user, str(programs / "pg_ctl"), "--wait", "--pgdata", str(data)]

    def tell(*command: str) -> None:
        # No pipes: what is started would keep them.
        subprocess.run(
            [*control, *command],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
        )

    tell("stop", "--mode", "fast")
    try:
        yield
    finally:
        # Left to ``running_server``, which stops whatever serves that folder.
        tell("start", "--options", shlex.join(options))


def test_a_full_disk_refuses_writes_and_nothing_else(sqlite_url: str, tmp_path: Path) -> None:
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    with serving(sqlite_url, tmp_path, log_level="error") as server:
        search_id = server.ask(MEDIUM, wait=60).json()["id"]
        plan_id = server.search(search_id)["plans"][0]["id"]
        body = {"plan_id": plan_id, "status": "ok", "step_time_s": 1.5, "log_tail": "x" * 30_000}
        assert server.client.post("/v1/measurements", json=body).status_code == 201
        with no_file_grows_beyond(server, file.with_name(f"{file.name}-wal").stat().st_size):
            refused = [server.client.post("/v1/measurements", json=body).status_code for _ in range(40)]
            assert 503 in refused
            assert set(refused) <= {201, 503}
            # What is there can be read, and an answer that is stored needs no write.
            assert server.client.get(f"/v1/plans/{plan_id}").status_code == 200
            assert server.ask(MEDIUM).json()["id"] == search_id
            assert server.client.get("/readyz").status_code == 200
        assert server.client.post("/v1/measurements", json=body).status_code == 201
        assert server.ask(SMALL, wait=60).json()["status"] == "optimal"
    assert wrong_with(sqlite_url) == []


@contextmanager
def no_file_grows_beyond(server: Server, size: int) -> Iterator[None]:
    """A disk that is full, for this server: what it appends to files is refused from that size on."""
    before = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, before)
