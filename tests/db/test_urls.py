"""Which database is meant, and that no password is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.errors import InvalidInput
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
