"""Who asks, and may they: API keys as Bearer tokens, or as the password of Basic for browsers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBasic, HTTPBearer
from starlette.concurrency import run_in_threadpool

from api.problems import ProblemRaised
from api.state import State, state_of
from db.keys import SCOPES, digest_of_secret
from db.records import ApiKey
from db.store import Store

_CHALLENGE = {"WWW-Authenticate": 'Bearer, Basic realm="planner: API key as password", charset="UTF-8"'}
# A key's last use is told to the hour: writing it down at every request would make every read a write.
_TOLD_EVERY = timedelta(hours=1)


class _Basic(HTTPBasic):
    """For the OpenAPI document; what is no Basic at all would be answered by it, and not by us."""

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        return None


# For the OpenAPI document only: the header is read below, where an error becomes a problem.
DOCUMENTED = [
    Depends(HTTPBearer(auto_error=False, description="An API key, made by `planner keys create`.")),
    Depends(_Basic(scheme_name="HTTPBasic", description="For browsers: any name, the API key as password.")),
]


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who asks.

    Attributes:
        id: the API key's; None where no keys are asked for.
        scopes: what they may do.
    """

    id: str | None
    scopes: frozenset[str]

    @property
    def name(self) -> str:
        """For keying what belongs to them."""
        return self.id or "anyone"


@dataclass(frozen=True)
class Allowed:
    """The dependency of routes that need a scope. Admins may do everything, writers may read."""

    scope: str

    async def __call__(self, request: Request, state: Annotated[State, Depends(state_of)]) -> Principal:
        """Who asks.

        Raises:
            ProblemRaised: nobody whom we know, or somebody who may not.
        """
        # Looked up once, though it is asked for before the body is read and again for the route.
        known: dict[str, Principal] = getattr(request.state, "asking", {})
        if self.scope not in known:
            known = request.state.asking = {**known, self.scope: await self._principal(request, state)}
        return known[self.scope]

    async def _principal(self, request: Request, state: State) -> Principal:
        if not state.settings.needs_keys:
            return Principal(id=None, scopes=frozenset(SCOPES))
        secret = _secret_of(request.headers.get("authorization", ""))
        if secret is None:
            raise ProblemRaised(401, "send an API key: Authorization: Bearer pk_...", headers=_CHALLENGE)
        key = await run_in_threadpool(_usable_key, state.store, secret)
        if key is None:
            raise ProblemRaised(401, "the API key is unknown, revoked or expired", headers=_CHALLENGE)
        request.state.principal = key.name
        scopes = frozenset(key.scopes) | ({"read"} if "write" in key.scopes else set())
        if self.scope not in scopes and "admin" not in scopes:
            raise ProblemRaised(403, f"the API key {key.name!r} has no scope {self.scope!r}")
        return Principal(id=key.id, scopes=frozenset(SCOPES) if "admin" in scopes else scopes)


class KeyFirst(APIRoute):
    """A route that looks at the key before it reads what is sent: nobody is told anything about it without one."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's, with our look before it."""
        handle = super().get_route_handler()
        checks = [found.call for found in self.dependant.dependencies if isinstance(found.call, Allowed)]

        async def checked(request: Request) -> Response:
            for check in checks:
                await check(request, await state_of(request))
            return await handle(request)

        return checked


Reader = Annotated[Principal, Depends(Allowed("read"))]
Writer = Annotated[Principal, Depends(Allowed("write"))]


def _secret_of(header: str) -> str | None:
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip() or None
    if scheme.lower() == "basic":
        try:
            _, _, password = base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return password or None
    return None


def _usable_key(store: Store, secret: str) -> ApiKey | None:
    with store.reading() as repos:
        key = repos.api_keys.by_digest(digest_of_secret(secret))
    now = datetime.now(UTC)
    if key is None or not key.is_valid(now):
        return None
    if key.last_used_at is None or now - key.last_used_at > _TOLD_EVERY:
        with store.writing() as repos:
            repos.api_keys.touch(key.id, now)
    return key


def may_write(principal: Principal) -> bool:
    """Whether it may ask and tell, and not look only."""
    return "write" in principal.scopes


def may_cancel(principal: Principal, created_by: str | None) -> bool:
    """Whether somebody may end what a key asked for: the key itself, if it may write, and an admin's."""
    mine = created_by in (None, principal.id)
    return may_write(principal) and (mine or "admin" in principal.scopes)


def check_may_cancel(principal: Principal, created_by: str | None) -> None:
    """Refuse who neither asked for it nor is an admin.

    Raises:
        ProblemRaised: another API key asked.
    """
    if not may_cancel(principal, created_by):
        raise ProblemRaised(403, "another API key asked this; only it or an admin's may cancel it")
