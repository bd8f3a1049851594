"""What keeps a server from starting is one line and the right exit code; what does not, it starts with."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from db.schema import upgrade
from db.urls import database_url
from tests.databases import PostgresServer
from tests.e2e.servers import environment_of, serve_command, serving

_ENDS_WITHIN_S = 40.0


def refusal(url: str, *options: str) -> tuple[int, str]:
    """Exit code and the one line of a server that does not start."""
    command = serve_command("--port", "0", *options)
    ended = subprocess.run(
        command, env=environment_of(url), capture_output=True, text=True, timeout=_ENDS_WITHIN_S, check=False
    )
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr
    return ended.returncode, lines[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--port", "70000"), "port"),
        (("--port", "http"), "whole number"),
        (("--slots", "0"), "slots"),
        (("--log-level", "loud"), "one of debug, info, warning, error"),
        (("--reload",), "--reload"),
        (("--config", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_bad_flags_are_bad_input(options: tuple[str, ...], said: str, sqlite_url: str) -> None:
    code, line = refusal(sqlite_url, *options)
    assert code == 2
    assert said in line


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("mysql://root@127.0.0.1/planner", 2, "sqlite:///path/to/file.db or postgresql://"),
        ("sqlite:////proc/planner.db", 5, "/proc/planner.db"),
        ("postgresql://planner:a-secret@127.0.0.1:1/planner", 5, "postgresql://planner:***@127.0.0.1:1/planner"),
    ],
)
def test_an_unusable_database_is_named_without_its_password(url: str, code: int, said: str) -> None:
    found, line = refusal(url)
    assert found == code
    assert said in line
    assert "a-secret" not in line


def test_a_busy_port_and_a_foreign_address_are_said(sqlite_url: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, line = refusal(sqlite_url, "--port", str(port))
    assert code == 5
    assert re.search(f"can't listen on 127.0.0.1 port {port}: .*in use", line)


def test_a_second_server_on_one_sqlite_file_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    with serving(sqlite_url, tmp_path) as first:
        code, line = refusal(sqlite_url)
        assert code == 5
        assert "another server" in line
        assert "PostgreSQL" in line
        assert first.client.get("/readyz").status_code == 200


def test_postgresql_that_was_not_upgraded_is_refused(postgres_server: PostgresServer) -> None:
    url = postgres_server.create(template="template1")
    try:
        code, line = refusal(url)
        assert code == 5
        assert "planner db upgrade" in line
        upgrade(database_url(url), "0001")
        code, line = refusal(url)
        assert code == 5
        assert "0001" in line
        assert "planner db upgrade" in line
    finally:
        postgres_server.drop(url)


def test_anything_but_loopback_needs_a_key(sqlite_url: str, tmp_path: Path) -> None:
    code, line = refusal(sqlite_url, "--host", "0.0.0.0")
    assert code == 2
    assert "planner keys create" in line
    key = made_key(sqlite_url, "scheduler", "write")
    with serving(sqlite_url, tmp_path, "--host", "0.0.0.0", key=key) as server:
        assert server.client.get("/v1/searches").status_code == 200
        # Who watches the server has no key; everybody else needs one.
        assert server.client.get("/healthz", headers={"Authorization": ""}).status_code == 200
        refused = server.client.get("/v1/searches", headers={"Authorization": ""})
        assert (refused.status_code, refused.json()["type"]) == (401, "unauthorized")
        wrong = server.client.get("/v1/searches", headers={"Authorization": f"Bearer {key[:-1]}"})
        assert wrong.status_code == 401
        assert key not in server.written()


def made_key(url: str, name: str, scope: str) -> str:
    """A key made by the command for that."""
    command = [*serve_command()[:-1], "keys", "create", "--name", name, "--scope", scope]
    made = subprocess.run(
        command, env=environment_of(url), capture_output=True, text=True, timeout=_ENDS_WITHIN_S, check=False
    )
    assert made.returncode == 0, made.stderr
    found = re.search(r"pk_\S+", made.stdout)
    assert found is not None, made.stdout
    return found[0]
