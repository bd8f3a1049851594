"""``planner keys``: who may use the API."""

from __future__ import annotations

import json
import sys
import uuid
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from costmodel.errors import InvalidInput, UnknownName
from db.keys import SCOPES
from planner.cli.exits import tell

if TYPE_CHECKING:
    from db.records import ApiKey

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke keys of the API.")

_LONGEST_NAME = 100
_MOST_DAYS = 36_500

_Url = Annotated[
    str | None,
    typer.Option(help="sqlite:///FILE or postgresql://...; by default PLANNER_DATABASE_URL, else the user's own file."),
]
_Name = Annotated[str, typer.Option(help="What the key is called; unique, also among revoked ones.")]
_Json = Annotated[bool, typer.Option("--json", help="The outcome as JSON on stdout.")]


@app.command("create")
def create(
    name: _Name,
    scope: Annotated[
        list[str], typer.Option(help="read, write (which includes read) or admin (everything); may be repeated.")
    ],
    expires_days: Annotated[int | None, typer.Option(help="Days until it expires; never by default.")] = None,
    database_url: _Url = None,
    as_json: _Json = False,
) -> None:
    """Make a key and print its secret, which is shown this once: the database keeps a digest only.

    Exit codes: 0 done, 2 bad input, 5 failed.
    """
    for one in scope:
        if one not in SCOPES:
            raise UnknownName("scope", one, SCOPES)
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise InvalidInput("name", name, f"1 to {_LONGEST_NAME} printable characters are expected")
    if expires_days is not None and not 1 <= expires_days <= _MOST_DAYS:
        raise InvalidInput("expires-days", expires_days, f"it must lie in 1..{_MOST_DAYS}")

    from db.keys import digest_of_secret, new_secret
    from db.records import ApiKey
    from db.store import Store

    now = datetime.now(UTC)
    key = ApiKey(
        id=uuid.uuid4().hex,
        name=name,
        scopes=tuple(known for known in SCOPES if known in scope),
        created_at=now,
        expires_at=None if expires_days is None else now + timedelta(days=expires_days),
        revoked_at=None,
        last_used_at=None,
    )
    secret = new_secret()
    with Store.open(database_url) as store, store.writing() as repos:
        repos.api_keys.add(key, digest_of_secret(secret))
    if as_json:
        sys.stdout.write(json.dumps({**_shown(key), "secret": secret}) + "\n")
    else:
        tell("planner: keep this secret, it is not shown again")
        sys.stdout.write(secret + "\n")


@app.command("list")
def list_keys(database_url: _Url = None, as_json: _Json = False) -> None:
    """List all keys by name, without their secrets.

    Exit codes: 0 done, 2 bad input, 5 failed.
    """
    from db.store import Store

    with Store.open(database_url) as store, store.reading() as repos:
        keys = repos.api_keys.list()
    if as_json:
        sys.stdout.write(json.dumps([_shown(key) for key in keys]) + "\n")
        return
    for key in keys:
        state = "revoked" if key.revoked_at else _until(key.expires_at)
        used = f"last used {key.last_used_at:%Y-%m-%d %H:%M} UTC" if key.last_used_at else "never used"
        sys.stdout.write(f"{key.name}  {','.join(key.scopes)}  {state}  {used}\n")


@app.command("revoke")
def revoke(name: _Name, database_url: _Url = None, as_json: _Json = False) -> None:
    """End a key, at once and for good.

    Exit codes: 0 done, 2 no such key, 5 failed.
    """
    from db.store import Store

    with Store.open(database_url) as store, store.writing() as repos:
        if not repos.api_keys.revoke(name, datetime.now(UTC)):
            valid = [key.name for key in repos.api_keys.list() if key.revoked_at is None]
            raise UnknownName("name", name, valid)
    sys.stdout.write((json.dumps({"revoked": name}) if as_json else f"{name} is revoked") + "\n")


def _until(expires_at: datetime | None) -> str:
    if expires_at is None:
        return "valid"
    return f"{'expired' if expires_at <= datetime.now(UTC) else 'valid until'} {expires_at:%Y-%m-%d}"


def _shown(key: ApiKey) -> dict[str, object]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(key).items()}
