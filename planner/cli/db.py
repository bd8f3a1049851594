"""``planner db``: looking after the database."""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from costmodel.errors import UnreadableFile
from planner.cli.exits import Exit, problem, tell

app = typer.Typer(no_args_is_help=True, help="Look after the database: upgrade, check, export, import.")

_Url = Annotated[
    str | None,
    typer.Option(help="sqlite:///FILE or postgresql://...; by default PLANNER_DATABASE_URL, else the user's own file."),
]
_Json = Annotated[bool, typer.Option("--json", help="The outcome as JSON on stdout.")]


@app.command("upgrade")
def upgrade(database_url: _Url = None, as_json: _Json = False) -> None:
    """Bring the database to this planner's revision, or create it. Safe to repeat, also by several at once.

    Exit codes: 0 done, 2 bad input, 5 failed.
    """
    from db.schema import upgrade
    from db.sqlite_file import prepare
    from db.urls import database_url as url_of

    database = url_of(database_url)
    before, after = prepare(database) if database.backend == "sqlite" else upgrade(database)
    done = f"{database.shown} is at revision {after}" + ("" if before == after else f" (it was at {before or 'none'})")
    _answer({"database": database.shown, "before": before, "revision": after}, done, as_json)


@app.command("check")
def check(database_url: _Url = None, as_json: _Json = False) -> None:
    """Look for what is wrong: schema, damage, rows that point nowhere, rows that were changed.

    Exit codes: 0 sound, 2 bad input, 5 something is wrong.
    """
    from db.schema import check
    from db.urls import database_url as url_of

    database = url_of(database_url)
    problems = check(database, contents=True)
    if not problems:
        _answer({"database": database.shown, "problems": []}, f"{database.shown} is sound", as_json)
        return
    if as_json:
        told = problem("database-unsound", "The database is not sound", problems[0], problems=problems)
        sys.stdout.write(told + "\n")
    else:
        for line in problems:
            tell(f"planner: {line}")
    raise typer.Exit(Exit.FAILED)


@app.command("export")
def export(
    out: Annotated[str, typer.Option(help="The file to write; - is stdout.")],
    database_url: _Url = None,
    as_json: _Json = False,
) -> None:
    """Write everything but the keys of the API and of its requests into a file, as JSON Lines.

    Exit codes: 0 done, 2 bad input, 5 failed.
    """
    from db.exporting import export, export_to_file
    from db.sqlite_file import check_there
    from db.store import Store
    from db.urls import database_url as url_of

    check_there(url_of(database_url))
    with Store.open(database_url) as store:
        if _is_stdout(out):
            tell(f"planner: {export(store, sys.stdout)} rows")
            return
        rows = export_to_file(store, Path(out))
        _answer({"database": store.shown_url, "out": out, "rows": rows}, f"{rows} rows are in {out}", as_json)


@app.command("import")
def import_(
    source: Annotated[str, typer.Option("--in", help="A file that planner db export wrote; - is stdin.")],
    database_url: _Url = None,
    as_json: _Json = False,
) -> None:
    """Add what a file holds and the database does not: all of it, or nothing.

    Exit codes: 0 done, 2 bad input, 5 failed.
    """
    from db.importing import import_lines, lines_of
    from db.store import Store

    with Store.open(database_url) as store, _opened(source) as lines:
        try:
            done = import_lines(store, lines_of(lines), datetime.now(UTC))
        except UnicodeDecodeError as error:
            raise UnreadableFile("in", source, f"it must be UTF-8: {error}") from None
    written, skipped = sum(done.written.values()), sum(done.skipped.values())
    answer = {"database": store.shown_url, "written": done.written, "skipped": done.skipped}
    _answer(answer, f"{written} rows are new, {skipped} were there already", as_json)


def _is_stdout(path: str) -> bool:
    """Also by another name, ``/dev/stdout`` say: what is told of an export must not end in it."""
    if path == "-":
        return True
    try:
        return os.path.samestat(os.stat(path), os.fstat(1))
    except OSError:
        return False


def _opened(source: str) -> AbstractContextManager[TextIO]:
    if source == "-":
        return nullcontext(sys.stdin)
    try:
        return open(source, encoding="utf-8")
    except OSError as error:
        raise UnreadableFile("in", source, f"it can't be read: {error.strerror}") from None


def _answer(answer: dict[str, Any], line: str, as_json: bool) -> None:
    sys.stdout.write((json.dumps(answer) if as_json else line) + "\n")
