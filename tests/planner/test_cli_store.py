"""``planner suggest`` and the store: answered once, given again, and answered all the same where a store fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from costmodel.calibration.calibration import DEFAULT_CALIBRATION
from db.store import Store
from planner.cli.main import run
from planner.question import Question
from planner.resolving import request_of
from planner.service import ask
from tests.databases import PostgresServer

SCENARIO = [
    *("--model", "llama-3-8b", "--cluster", "dgx-h100", "--devices", "16", "--global-batch-size", "64"),
    *("--seq-len", "4096", "--top", "2"),
]
MOMENTS = ("created_at", "started_at", "finished_at")

Told = tuple[int, str, str]
Ask = Callable[..., Told]


@pytest.fixture
def suggest(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run the command in this process: (exit code, stdout, stderr)."""

    def ask(*arguments: str) -> Told:
        code = run(["suggest", *SCENARIO, *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return ask


@pytest.fixture
def database(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An SQLite file that the command line finds, and nobody else."""
    monkeypatch.setenv("PLANNER_DATABASE_URL", sqlite_url)
    return sqlite_url


@pytest.fixture
def no_file_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command line would make its database."""
    path = tmp_path / "data" / "planner.db"
    monkeypatch.setenv("PLANNER_DATABASE_URL", f"sqlite:///{path}")
    return path


def without(answer: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in names}


def test_an_answer_is_given_again_as_it_was(suggest: Ask, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_DATABASE_URL", store_url)
    code, fresh, err = suggest("--json")
    assert (code, err) == (0, "")
    code, stored, err = suggest("--json")
    assert code == 0
    assert stored == fresh
    found = json.loads(fresh)
    assert err.startswith("planner: answered from the store: searched on 20")
    assert err.endswith(f" UTC, id {found['id']}\n")
    assert err.count("\n") == 1
    assert found["state"] == "done"
    assert found["earlier"] == []

    code, table, err = suggest()
    assert code == 0
    assert "Proven best of the space searched" in table
    assert "answered from the store" in err


def test_an_answer_that_is_not_stored_differs_only_by_what_storing_adds(suggest: Ask, database: str) -> None:
    stored, plain = (json.loads(suggest("--json", *more)[1]) for more in ((), ("--no-store",)))
    assert set(stored) - set(plain) == {"id", "state", *MOMENTS, "question", "earlier"}
    for name in set(plain) - {"search"}:
        assert stored[name] == plain[name]
    assert without(stored["search"], "elapsed_s") == without(plain["search"], "elapsed_s")


def test_what_is_not_to_be_stored_touches_no_database(suggest: Ask, no_file_yet: Path) -> None:
    code, _, err = suggest("--no-store")
    assert (code, err) == (0, "")
    assert not no_file_yet.parent.exists()
    suggest()
    assert no_file_yet.exists()
    _, _, err = suggest("--no-store")
    assert err == "", "it is searched anew"


def test_what_is_not_to_be_stored_loads_no_database_library() -> None:
    script = (
        "import sys; from planner.cli.main import run\n"
        f"code = run(['suggest', *{SCENARIO!r}, '--no-store'])\n"
        "print(code, sorted({'sqlalchemy', 'alembic', 'httpx', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_nothing_fits_and_cut_short_keep_their_exit_codes(suggest: Ask, database: str) -> None:
    for arguments, expected in ((["--pin", "tp=3"], 3), (["--max-seconds", "0.000001", "--seed", "3"], 4)):
        code, _, first = suggest(*arguments)
        assert code == expected
        code, _, second = suggest(*arguments)
        assert code == expected
        note, *rest = second.splitlines()
        assert note.startswith("planner: answered from the store")
        assert rest == first.splitlines()


def test_an_answer_that_a_deadline_cut_is_not_given_to_who_has_more_time(suggest: Ask, database: str) -> None:
    assert suggest("--max-seconds", "0.000001")[0] == 4
    code, _, err = suggest("--max-seconds", "60")
    assert (code, err) == (0, "")


def broken_file(folder: Path) -> str:
    (folder / "planner.db").write_text("no database at all, but long enough to look at" * 50, encoding="utf-8")
    return f"sqlite:///{folder / 'planner.db'}"


def file_for_a_folder(folder: Path) -> str:
    (folder / "data").write_text("", encoding="utf-8")
    return f"sqlite:///{folder / 'data' / 'planner.db'}"


@pytest.mark.parametrize(
    "url",
    [
        broken_file,
        file_for_a_folder,
        lambda folder: "sqlite:////proc/planner/planner.db",
        lambda folder: "postgresql://planner:not-shown@127.0.0.1:1/planner",
        lambda folder: "mysql://root@localhost/planner",
    ],
    ids=["no database", "no folder", "read-only", "unreachable", "unknown kind"],
)
def test_a_store_that_fails_is_one_warning(
    suggest: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: Callable[[Path], str]
) -> None:
    monkeypatch.setenv("PLANNER_DATABASE_URL", url(tmp_path))
    code, out, err = suggest("--json")
    assert code == 0
    assert json.loads(out)["status"] == "optimal"
    assert err.startswith("planner: warning: the answer is not stored: ")
    assert err.count("\n") == 1
    assert "not-shown" not in err
    assert suggest("--pin", "tp=3")[0] == 3


def test_a_database_that_waits_for_its_upgrade_is_one_warning(
    suggest: Ask, monkeypatch: pytest.MonkeyPatch, postgres_server: PostgresServer
) -> None:
    url = postgres_server.create(template="template0")
    monkeypatch.setenv("PLANNER_DATABASE_URL", url)
    code, _, err = suggest()
    postgres_server.drop(url)
    assert code == 0
    assert "planner db upgrade" in err
    assert err.count("\n") == 1


def test_a_store_that_fails_when_the_answer_is_there_is_one_warning(suggest: Ask, database: str) -> None:
    with Store.open(database) as store, store.writing() as repos:
        repos.plans._connection.exec_driver_sql("DROP TABLE search_plans")
    code, out, err = suggest("--json")
    assert code == 0
    assert json.loads(out)["plans"]
    assert err.startswith("planner: warning: the answer is not stored: ")
    assert err.count("\n") == 1


def test_bad_input_is_said_before_any_store_is_touched(suggest: Ask, no_file_yet: Path) -> None:
    assert suggest("--devices", "0")[0] == 2
    assert not no_file_yet.parent.exists()


def test_a_server_may_be_at_the_same_question(suggest: Ask, database: str) -> None:
    question = Question(model="llama-3-8b", cluster="dgx-h100", devices=16, global_batch_size=64, seq_len=4096, top=2)
    with Store.open(database) as store:
        waiting = ask(store, request_of(question), now=datetime.now(UTC)).search
    code, out, err = suggest("--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["id"] != waiting.id


@pytest.fixture
def other_calibration(tmp_path: Path) -> Path:
    """A catalog of the user's own, whose default calibration is another one by a hair."""
    name = f"{DEFAULT_CALIBRATION}.json"
    text = (resources.files("costmodel.catalog") / "calibrations" / name).read_text(encoding="utf-8")
    folder = tmp_path / "catalog" / "calibrations"
    folder.mkdir(parents=True)
    changed = text.replace(f'"name": "{DEFAULT_CALIBRATION}"', f'"name": "{DEFAULT_CALIBRATION}-ours"')
    assert changed != text
    (folder / name).write_text(changed, encoding="utf-8")
    return folder.parent


def test_an_answer_under_another_calibration_is_told(
    suggest: Ask, database: str, monkeypatch: pytest.MonkeyPatch, other_calibration: Path
) -> None:
    monkeypatch.setenv("PLANNER_CATALOG_DIR", str(other_calibration))
    before = json.loads(suggest("--json")[1])
    monkeypatch.delenv("PLANNER_CATALOG_DIR")
    code, out, err = suggest("--json")
    assert code == 0
    now = json.loads(out)
    assert [other["id"] for other in now["earlier"]] == [before["id"]]
    assert err.count("\n") == 1
    day = before["finished_at"][:10]
    for words in (
        f"answered before, on {day}",
        f"id {before['id']}",
        f"calibration {DEFAULT_CALIBRATION}-ours ({before['search']['calibration_id'][:8]})",
        f"now {DEFAULT_CALIBRATION} ({now['search']['calibration_id'][:8]})",
        f"the best was {before['best']:.4g} s per step then and is {now['best']:.4g} s per step now",
    ):
        assert words in err

    _, _, err = suggest()
    assert [line.split(":")[1].split(",")[0].strip() for line in err.splitlines()] == [
        "answered from the store",
        "answered before",
    ]
