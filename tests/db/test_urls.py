"""Which database is meant, and that no password is ever shown."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import NoReturn

import pytest

from costmodel.errors import InvalidInput, Missing
from db.errors import StoreUnavailable
from db.schema import check, upgrade
from db.store import Store
from db.urls import VARIABLE, database_url, default_path


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hush-hush@host/db",
        "postgresql+asyncpg://u:hush-hush@host/db",
        "postgres://u:hush-hush@host/db",
        "postgresql://u:hush-hush@host",
        "hush-hush",
        "u:hush-hush@host:port:port",
        "postgresql://u:hush-hush@more@host/db",
        "postgresql://u:hush@hush-hush@host/db",
        "postgresql://u:hush@hush/hush-hush@host/db",
        "mysql://u:hush@hush-hush@host/db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory&uri=true",
        "sqlite:///x.db?mode=ro",
        "sqlite://host/x.db",
    ],
)
def test_other_urls_are_refused_and_no_password_is_shown(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        database_url(url)
    assert refused.value.field == "database-url"
    assert "hush-hush" not in str(refused.value)
    assert "hush-hush" not in str(refused.value.value)


def test_both_names_of_the_driver_are_the_same_database() -> None:
    short, long = (database_url(f"{name}://u:hush@h:5432/d?sslmode=require") for name in _POSTGRESQL)
    assert short.url == long.url
    assert short.shown == long.shown == "postgresql://u:***@h:5432/d"


_POSTGRESQL = ("postgresql", "postgresql+psycopg")


def test_the_url_comes_from_the_environment_or_is_the_users_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sqlite:////somewhere/x.db")
    assert database_url().path == Path("/somewhere/x.db")
    assert database_url("sqlite:////elsewhere/x.db").path == Path("/elsewhere/x.db")
    monkeypatch.delenv(VARIABLE)
    assert database_url().path == default_path()
    assert default_path().name == "planner.db"


def test_an_at_sign_in_a_password_has_to_be_percent_encoded() -> None:
    with pytest.raises(InvalidInput, match="percent-encoded") as refused:
        database_url("postgresql://u:sec@ret@127.0.0.1:1/db")
    assert "ret" not in str(refused.value)
    assert database_url("postgresql://u:sec%40ret@127.0.0.1:1/db").url.password == "sec@ret"


def test_a_user_without_a_home_needs_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: int) -> NoReturn:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in (VARIABLE, "HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Missing, match=VARIABLE):
        database_url()


def test_a_home_that_nobody_has_is_told() -> None:
    with pytest.raises(InvalidInput, match="no such home"):
        database_url("sqlite:///~nosuchuser/x.db")


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(InvalidInput, match="the working directory is gone"):
        database_url("sqlite:///x.db")
    assert database_url("sqlite:////elsewhere/x.db").path == Path("/elsewhere/x.db")


@pytest.mark.parametrize(
    ("option", "told"),
    [("foo=bar", "foo"), ("connect_timeout=abc", "connect_timeout"), ("connect_timeout=1&connect_timeout=2", "")],
)
def test_an_option_that_the_driver_does_not_take_is_told_in_a_line(postgres_url: str, option: str, told: str) -> None:
    for use in (Store.open, lambda url: upgrade(database_url(url)), lambda url: check(database_url(url))):
        with pytest.raises((StoreUnavailable, InvalidInput)) as refused:
            use(f"{postgres_url}?{option}")
        assert told in str(refused.value)
        assert "\n" not in str(refused.value)
