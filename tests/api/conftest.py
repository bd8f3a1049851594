"""A live server on each database, once per session, and clients with keys of each kind."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from db.keys import digest_of_secret, new_secret
from db.records import ApiKey
from db.store import Store
from tests.api.asking import answered
from tests.api.contract import Contract
from tests.databases import BACKENDS, PostgresServer
from tests.e2e.servers import Server, serving


class Live:
    """A server that asks for API keys, and its database.

    Attributes:
        store: what the server also has open; for what only the passing of time or another version brings about.
        contract: what every response of the clients is held against.
    """

    def __init__(self, server: Server, store: Store, stack: ExitStack) -> None:
        self.server, self.store, self._stack = server, store, stack
        self.contract = Contract(httpx.get(f"{self.url}/openapi.json", trust_env=False).raise_for_status().json())

    @cached_property
    def writer(self) -> httpx.Client:
        """May read and write."""
        return self.client(self.key("write")[1])

    @cached_property
    def answer(self) -> dict[str, Any]:
        """A search that is done, with three plans."""
        # Of a length that no other question has.
        return answered(self.writer, seq_len=2080)

    @property
    def url(self) -> str:
        """Where it listens."""
        return str(self.server.client.base_url).rstrip("/")

    def key(self, *scopes: str, expires_in: timedelta | None = None) -> tuple[ApiKey, str]:
        """A new API key and its secret."""
        secret, now = new_secret(), datetime.now(UTC)
        key = ApiKey(
            id=uuid4().hex,
            name=f"test-{secrets.token_hex(4)}",
            scopes=scopes,
            created_at=now,
            expires_at=None if expires_in is None else now + expires_in,
            revoked_at=None,
            last_used_at=None,
        )
        with self.store.writing() as repos:
            repos.api_keys.add(key, digest_of_secret(secret))
        return key, secret

    def client(self, secret: str | None = None) -> httpx.Client:
        """A client whose every response has to be in the OpenAPI document."""
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        made = httpx.Client(base_url=self.url, headers=headers, trust_env=False, verify=False, timeout=60.0)
        made.event_hooks = {"response": [self.contract.check]}
        return self._stack.enter_context(made)


@pytest.fixture(scope="session")
def live_on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server on SQLite."""
    folder = tmp_path_factory.mktemp("api-sqlite")
    with _running(f"sqlite:///{folder / 'planner.db'}", folder) as live:
        yield live


@pytest.fixture(scope="session")
def live_on_postgresql(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server on PostgreSQL."""
    url = postgres_server.create()
    with _running(url, tmp_path_factory.mktemp("api-postgresql")) as live:
        yield live
    postgres_server.drop(url)


# The servers are fixtures of their own: one that has the database as its parameter would be started again and again, as
# the tests of a session come file by file.
@pytest.fixture(params=BACKENDS, scope="module")
def live(request: pytest.FixtureRequest) -> Live:
    """A server on each of the two databases."""
    found: Live = request.getfixturevalue(f"live_on_{request.param}")
    return found


@pytest.fixture(scope="module")
def client(live: Live) -> httpx.Client:
    """May read and write."""
    return live.writer


@pytest.fixture(scope="module")
def answer(live: Live) -> dict[str, Any]:
    """A search that is done, with three plans."""
    return live.answer


@pytest.fixture(scope="session")
def open_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on loopback that asks for no keys."""
    folder: Path = tmp_path_factory.mktemp("api-open")
    with serving(f"sqlite:///{folder / 'planner.db'}", folder) as server:
        yield str(server.client.base_url).rstrip("/")


@contextmanager
def _running(url: str, folder: Path) -> Iterator[Live]:
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(url))
        _first_key(store)
        server = stack.enter_context(serving(url, folder, "--require-keys"))
        yield Live(server, store, stack)


def _first_key(store: Store) -> None:
    """A server that asks for keys does not start while there is none."""
    record = ApiKey(
        id=uuid4().hex,
        name="first",
        scopes=("read",),
        created_at=datetime.now(UTC),
        expires_at=None,
        revoked_at=None,
        last_used_at=None,
    )
    with store.writing() as repos:
        repos.api_keys.add(record, digest_of_secret(new_secret()))
