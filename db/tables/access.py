"""Keys of the API, and of requests that a client may send again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Digest, Whole32
from db.tables.base import FINGERPRINT, Base


class ApiKeyRow(Base):
    """A key of the API: what it may do, and the digest of its secret. The secret itself is never stored."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(Digest(FINGERPRINT), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    secret_sha256: Mapped[str] = mapped_column(Digest(64), unique=True)
    scopes: Mapped[list[Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class IdempotencyKeyRow(Base):
    """A request that a client may send again: what it was, and the response once there is one."""

    __tablename__ = "idempotency_keys"

    principal: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request: Mapped[str]
    body_sha256: Mapped[str] = mapped_column(Digest(64))
    # Who works on it: a request that took the key over from a dead one must not be finished by that one.
    holder: Mapped[str]
    status_code: Mapped[int | None] = mapped_column(Whole32)
    headers: Mapped[dict[str, Any] | None]
    body: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(index=True)
