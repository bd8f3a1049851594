"""Requests that may safely be sent again: ``Idempotency-Key``.

After draft-ietf-httpapi-idempotency-key-header-07 (expired in 2026-04, so it is a convention, not a standard): the same
key with the same body gets the same response, with another body 422, and 409 while the first one is in progress.
Keys belong to whoever sends them and are kept for a day.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Header
from fastapi.responses import Response
from pydantic import BaseModel

from api.auth import Principal
from api.problems import ProblemRaised
from costmodel.fingerprint import digest
from db.records import StoredResponse
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

    Use ``earlier`` first: it is the response to send if there is one. Otherwise carry the request out and ``keep`` the
    response, or ``forget`` the key when there is none to keep.
    """

    def __init__(self, store: Store, principal: Principal, key: str | None, request: str, body: BaseModel) -> None:
        self._store, self._principal, self._key, self._request = store, principal.name, key, request
        self._digest = digest(body.model_dump(mode="json"))
        self._holder = uuid4().hex

    def earlier(self) -> Response | None:
        """The response that was given before; None when this request has to be carried out.

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
            raise ProblemRaised(
                409,
                "the first request with this Idempotency-Key is in progress; ask again in a while",
                slug="idempotency-key-in-progress",
                headers={"Retry-After": "1"},
            )
        if claimed.response is None:
            return None
        stored = claimed.response
        return Response(stored.body, stored.status_code, {**stored.headers, REPLAYED: "true"})

    def keep(self, response: Response) -> Response:
        """Remember the response under the key; errors of the server's own are not remembered."""
        if self._key is None:
            return response
        if response.status_code >= 500:
            self.forget()
            return response
        kept = {name: value for name, value in response.headers.items() if name in _KEPT_HEADERS}
        stored = StoredResponse(
            status_code=response.status_code, headers=kept, body=bytes(response.body).decode("utf-8")
        )
        with self._store.writing() as repos:
            repos.idempotency.complete(self._principal, self._key, self._holder, stored)
        return response

    def forget(self) -> None:
        """The request was not carried out: the next one with this key starts afresh."""
        if self._key is not None:
            with self._store.writing() as repos:
                repos.idempotency.forget(self._principal, self._key, self._holder)

    def run(self, carry_out: Callable[[], Response]) -> Response:
        """All of it, for what one function carries out."""
        earlier = self.earlier()
        if earlier is not None:
            return earlier
        try:
            response = carry_out()
        except BaseException:
            self.forget()
            raise
        return self.keep(response)


def json_response(answer: BaseModel, status: int, headers: dict[str, Any] | None = None) -> Response:
    """An answer that is not conditional."""
    body = json.dumps(answer.model_dump(mode="json", exclude_unset=True), ensure_ascii=False, allow_nan=False)
    return Response(body, status, headers, "application/json")
