"""Keys of the API, and of requests that a client may send again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from db.records.values import Json


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    id: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    def is_valid(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True, kw_only=True)
class StoredResponse:
    """The response that an idempotency key stands for."""

    status_code: int
    headers: Json
    body: str


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """The outcome of asking for an idempotency key.

    Attributes:
        outcome: ``started``: this request has to be carried out; ``answered``: ``response`` is the answer;
            ``other_body``: the key stands for another request; ``in_progress``: somebody works on it.
    """

    outcome: Literal["started", "answered", "other_body", "in_progress"]
    response: StoredResponse | None = None
