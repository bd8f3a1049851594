"""``planner db`` and ``planner keys``, as scripts call them: exit codes, what is on stdout, what is in the store."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest

from db.revisions import HEAD
from db.store import Store
from db.transfer import header
from db.urls import VARIABLE
from planner.cli.exits import Exit
from planner.cli.main import run
from tests.databases import PostgresServer
from tests.db.samples import keep, plan, scenario

SCENARIO = scenario()


@pytest.fixture(autouse=True)
def _named_by_the_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "store_url" in request.fixturenames:
        monkeypatch.setenv(VARIABLE, request.getfixturevalue("store_url"))


def planner(*arguments: str) -> int:
    return run(list(arguments))


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    answer = json.loads(capsys.readouterr().out)
    assert isinstance(answer, dict)
    return answer


def test_upgrade_makes_a_file_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path / 'new' / 'x.db'}"
    assert planner("db", "upgrade", "--database-url", url, "--json") == Exit.ANSWERED
    assert told(capsys) == {"database": url, "before": None, "revision": HEAD}
    assert planner("db", "upgrade", "--database-url", url, "--json") == Exit.ANSWERED
    assert told(capsys) == {"database": url, "before": HEAD, "revision": HEAD}
    assert planner("db", "upgrade", f"--database-url={url}") == Exit.ANSWERED
    assert f"is at revision {HEAD}" in capsys.readouterr().out


def test_upgrade_makes_the_tables_of_a_new_postgresql(
    postgres_server: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres_server.create(template="template0")
    try:
        assert planner("db", "check", "--database-url", url) == Exit.FAILED
        assert "planner db upgrade" in capsys.readouterr().err
        assert planner("keys", "list", "--database-url", url) == Exit.FAILED
        assert "planner db upgrade" in capsys.readouterr().err
        assert planner("db", "upgrade", "--database-url", url) == Exit.ANSWERED
        assert planner("db", "check", "--database-url", url) == Exit.ANSWERED
        assert "not-shown-anywhere" not in "".join(capsys.readouterr())
    finally:
        postgres_server.drop(url)


def test_check_tells_every_problem(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert planner("db", "check", "--json") == Exit.ANSWERED
    assert told(capsys)["problems"] == []
    one = plan(SCENARIO)
    with Store.open(store_url) as store:
        keep(store, SCENARIO)
        with store.writing() as repos:
            repos.plans.put([one])
            repos.connection.exec_driver_sql("UPDATE plan_documents SET plan = '{}'")
    assert planner("db", "check", "--json") == Exit.FAILED
    answer = told(capsys)
    assert answer["type"] == "database-unsound"
    assert one.id in str(answer["problems"])
    assert planner("db", "check") == Exit.FAILED
    assert one.id in capsys.readouterr().err


@pytest.mark.parametrize("command", [("check",), ("export", "--out", "-")])
def test_who_only_reads_makes_no_file(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'mistyped.db'}"
    assert planner("db", *command, "--database-url", url) == Exit.FAILED
    output = capsys.readouterr()
    assert "there is no" in output.err
    assert output.out == ""
    assert list(tmp_path.iterdir()) == []


def test_export_and_import(store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, path = plan(SCENARIO), tmp_path / "export.jsonl"
    with Store.open(store_url) as store:
        keep(store, SCENARIO)
        with store.writing() as repos:
            repos.plans.put([one])
    assert planner("db", "export", "--out", str(path), "--json") == Exit.ANSWERED
    assert told(capsys)["rows"] == 7
    assert planner("db", "export", "--out", "-") == Exit.ANSWERED
    assert capsys.readouterr().out == path.read_text(encoding="utf-8")
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert planner("db", "import", "--in", str(path), "--database-url", other, "--json") == Exit.ANSWERED
    assert sum(told(capsys)["written"].values()) == 7
    with Store.open(other) as store, store.reading() as repos:
        assert repos.plans.get(one.id) == one
    assert planner("db", "import", "--in", str(path), "--database-url", other) == Exit.ANSWERED
    assert "0 rows are new, 7 were there already" in capsys.readouterr().out


def test_stdout_by_another_name_holds_the_rows_alone(sqlite_url: str) -> None:
    export = [sys.executable, "-m", "planner.cli.main", "db", "export", "--database-url", sqlite_url, "--out"]
    told = [
        subprocess.run([*export, name], capture_output=True, text=True, check=True).stdout
        for name in ("-", "/dev/stdout")
    ]
    assert told[0] == told[1]
    assert told[0].splitlines()[-1] == '{"rows": 0}'


def test_an_import_that_waits_for_its_input_lets_others_write(sqlite_url: str) -> None:
    command = [sys.executable, "-m", "planner.cli.main", "db", "import", "--in", "-", "--database-url", sqlite_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as importing:
        assert importing.stdin is not None
        importing.stdin.write(header() + "\n")
        importing.stdin.flush()
        deadline = time.monotonic() + 2
        with Store.open(sqlite_url) as store:
            while time.monotonic() < deadline:
                keep(store, SCENARIO)
        out, _ = importing.communicate('{"rows": 0}\n', timeout=60)
    assert out == "0 rows are new, 0 were there already\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "it can't be read"), (b"\xff\xfe", "it must be UTF-8"), (b"{}\n", "line 1"), (b"", "line 1")],
)
def test_a_file_that_can_not_be_imported(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, expected: str
) -> None:
    path = tmp_path / "x.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert planner("db", "import", "--in", str(path), "--database-url", sqlite_url, "--json") == Exit.BAD_INPUT
    answer = told(capsys)
    assert answer["field"] == "in"
    assert expected in str(answer["expected"])


@pytest.mark.parametrize("command", ["upgrade", "check"])
def test_a_database_that_is_none(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = "mysql://u:hush-hush@h/d"
    assert planner("db", command, "--database-url", url, "--json") == Exit.BAD_INPUT
    output = capsys.readouterr().out
    assert json.loads(output)["field"] == "database-url"
    assert "hush-hush" not in output
    url = "postgresql://u:hush-hush@127.0.0.1:1/d"
    assert planner("db", command, "--database-url", url) == Exit.FAILED
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "hush-hush" not in errors


def test_a_key_is_shown_once_and_stored_as_its_digest(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    scopes = ("--scope", "write", "--scope", "read")
    assert planner("keys", "create", "--name", "scheduler", *scopes, "--expires-days", "30") == Exit.ANSWERED
    secret = capsys.readouterr().out.strip()
    assert secret.startswith("pk_")
    assert len(secret) >= 43
    with Store.open(store_url) as store, store.reading() as repos:
        key = repos.api_keys.by_digest(sha256(secret.encode()).hexdigest())
    assert key is not None
    assert (key.name, key.scopes) == ("scheduler", ("read", "write"))
    assert key.expires_at is not None
    assert (key.expires_at - key.created_at).days == 30
    assert planner("keys", "list", "--json") == Exit.ANSWERED
    listed = capsys.readouterr().out
    assert [found["name"] for found in json.loads(listed)] == ["scheduler"]
    assert planner("keys", "list") == Exit.ANSWERED
    listed += capsys.readouterr().out
    assert "scheduler  read,write  valid until" in listed
    assert secret not in listed


def test_a_revoked_key_is_listed_as_that(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert planner("keys", "create", "--name", "ci", "--scope", "read", "--json") == Exit.ANSWERED
    assert str(told(capsys)["secret"]).startswith("pk_")
    assert planner("keys", "revoke", "--name", "ci") == Exit.ANSWERED
    assert planner("keys", "list") == Exit.ANSWERED
    assert "ci  read  revoked  never used" in capsys.readouterr().out
    assert planner("keys", "revoke", "--name", "ci") == Exit.BAD_INPUT
    assert planner("keys", "create", "--name", "ci", "--scope", "read") == Exit.BAD_INPUT


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--scope", "read"), "name"),
        (("--name", "x"), "scope"),
        (("--name", "x", "--scope", "reed"), "scope"),
        (("--name", " ", "--scope", "read"), "name"),
        (("--name", "two\nlines", "--scope", "read"), "name"),
        (("--name", "x" * 101, "--scope", "read"), "name"),
        (("--name", "x", "--scope", "read", "--expires-days", "0"), "expires-days"),
        (("--name", "x", "--scope", "read", "--expires-days", "soon"), "expires-days"),
    ],
)
def test_a_key_that_can_not_be(
    sqlite_url: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], field: str
) -> None:
    assert planner("keys", "create", *arguments, "--database-url", sqlite_url, "--json") == Exit.BAD_INPUT
    assert told(capsys)["field"] == field


def test_what_kubernetes_puts_beside_a_service_of_our_name_is_no_port(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, sqlite_url)

    def said_of(variable: str) -> str:
        monkeypatch.setenv("PLANNER_PORT", variable)
        # There is no API key, so no server starts either way.
        assert planner("serve", "--require-keys") == Exit.BAD_INPUT
        return capsys.readouterr().err

    assert "planner keys create" in said_of("tcp://10.1.2.3:8000")
    assert "port: 'eight' is not usable" in said_of("eight")
