"""A live server on each database, once per session, and clients with keys of each kind."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
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


@pytest.fixture(scope="session", params=BACKENDS)
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server on each of the two databases."""
    folder = tmp_path_factory.mktemp(f"api-{request.param}")
    with ExitStack() as stack:
        url = f"sqlite:///{folder / 'planner.db'}"
        if request.param == "postgresql":
            postgres: PostgresServer = request.getfixturevalue("postgres_server")
            url = postgres.create()
            stack.callback(postgres.drop, url)
        store = stack.enter_context(Store.open(url))
        _first_key(store)
        server = stack.enter_context(serving(url, folder, "--require-keys"))
        yield Live(server, store, stack)


@pytest.fixture(scope="session")
def client(live: Live) -> httpx.Client:
    """May read and write."""
    return live.client(live.key("write")[1])


@pytest.fixture(scope="session")
def answer(client: httpx.Client) -> dict[str, Any]:
    """A search that is done, with three plans."""
    return answered(client)


@pytest.fixture(scope="session")
def open_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on loopback that asks for no keys."""
    folder: Path = tmp_path_factory.mktemp("api-open")
    with serving(f"sqlite:///{folder / 'planner.db'}", folder) as server:
        yield str(server.client.base_url).rstrip("/")


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
