"""Requests that may safely be sent again: ``Idempotency-Key``.

After draft-ietf-httpapi-idempotency-key-header-07 (expired in 2026-04, so it is a convention, not a standard): the same
key with the same body gets the same response, with another body 422, and 409 while the first one is in progress.
Keys belong to whoever sends them and are kept for a day (``api.housekeeping``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import uuid4

from fastapi import Header
from fastapi.responses import Response
from pydantic import BaseModel

from api.auth import Principal
from api.problems import ProblemRaised
from costmodel.fingerprint import digest
from db.records import StoredResponse
from db.repositories import Repositories
from db.store import Store

KEPT = timedelta(days=1)
# Longer than any request takes: whoever held the key longer than that has died.
ABANDONED = timedelta(minutes=2)
REPLAYED = "Idempotency-Replayed"
_KEPT_HEADERS = frozenset({"location", "retry-after", "etag", "preference-applied", "content-type", "link"})

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,255}$",
        description="Any text of your own; the same key with the same body gets the same response for a day.",
    ),
]


class Once:
    """One request that is carried out at most once per key.

    ``claim`` first: what it returns is what the key stands for already. Otherwise carry the request out, within
    ``or_forgotten``, and ``complete`` the key, or ``keep`` the response under it. Without a key all of that does
    nothing.
    """

    def __init__(self, store: Store, principal: Principal, key: str | None, request: str, body: BaseModel) -> None:
        self._store, self._principal, self._key, self._request = store, principal.name, key, request
        # Of what was sent: what is left out may mean something else than its default.
        self._digest = digest(body.model_dump(mode="json", exclude_unset=True))
        self._holder = uuid4().hex

    def claim(self) -> StoredResponse | None:
        """What was answered before; None when this request has to be carried out.

        Raises:
            ProblemRaised: the key stands for another request, or somebody is carrying it out.
        """
        if self._key is None:
            return None
        now = datetime.now(UTC)
        with self._store.writing() as repos:
            claimed = repos.idempotency.claim(
                self._principal,
                self._key,
                self._request,
                self._digest,
                self._holder,
                now,
                abandoned_before=now - ABANDONED,
                expired_before=now - KEPT,
            )
        if claimed.outcome == "other_body":
            raise ProblemRaised(
                422, "this Idempotency-Key was used for another request; take a new one", slug="idempotency-key-reused"
            )
        if claimed.outcome == "in_progress":
            raise _in_progress()
        return claimed.response

    def complete(self, repos: Repositories, response: Response) -> None:
        """Remember the response, in the transaction that did what was asked: both are there, or neither is.

        Raises:
            ProblemRaised: this request took so long that another one has the key now; undoes the transaction.
        """
        if self._key is None:
            return
        kept = {name: value for name, value in response.headers.items() if name in _KEPT_HEADERS}
        content = bytes(response.body).decode("utf-8")
        stored = StoredResponse(status_code=response.status_code, headers=kept, body=content)
        if not repos.idempotency.complete(self._principal, self._key, self._holder, stored):
            raise _in_progress()

    @contextmanager
    def or_forgotten(self) -> Iterator[None]:
        """Whatever ends the block early, the next request with this key starts afresh."""
        try:
            yield
        except BaseException:
            if self._key is not None:
                with self._store.writing() as repos:
                    repos.idempotency.forget(self._principal, self._key, self._holder)
            raise

    def keep(self, response: Response) -> None:
        """``complete`` in a transaction of its own, for what does no harm when it is carried out again."""
        if self._key is not None:
            with self._store.writing() as repos:
                self.complete(repos, response)


def replayed(stored: StoredResponse) -> Response:
    """The response that was given before, byte for byte."""
    return Response(stored.body, stored.status_code, {**stored.headers, REPLAYED: "true"})


def _in_progress() -> ProblemRaised:
    return ProblemRaised(
        409,
        "the first request with this Idempotency-Key is in progress; ask again in a while",
        slug="idempotency-key-in-progress",
        headers={"Retry-After": "1"},
    )
