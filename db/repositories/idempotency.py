"""Requests that may be sent again: the first one is carried out, the others get its response."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from db.records import Claimed, StoredResponse
from db.repositories.statements import insert_unless_there
from db.tables import IdempotencyKeyRow


class Idempotency:
    """Keys of requests, by the principal that sent them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def claim(
        self,
        principal: str,
        key: str,
        request: str,
        body_sha256: str,
        holder: str,
        now: datetime,
        abandoned_before: datetime,
        expired_before: datetime,
    ) -> Claimed:
        """Ask whether a request has to be carried out.

        Args:
            request: method and path.
            holder: who would carry it out; a name of this very request.
            abandoned_before: one that began earlier and has no response yet is taken over.
            expired_before: one that began earlier is as if it had never been.
        """
        this = _is(principal, key)
        fresh = {
            "request": request,
            "body_sha256": body_sha256,
            "holder": holder,
            "status_code": None,
            "headers": None,
            "body": None,
            "created_at": now,
        }
        place = {"principal": principal, "key": key}
        # The one that stood in the way may be gone by the time it is looked at.
        while not insert_unless_there(self._connection, IdempotencyKeyRow, {**place, **fresh}, tuple(place)):
            query = select(IdempotencyKeyRow.__table__).where(this).with_for_update()
            found = self._connection.execute(query).one_or_none()
            if found is None:
                continue
            if found.created_at >= expired_before:
                if (found.request, found.body_sha256) != (request, body_sha256):
                    return Claimed(outcome="other_body")
                if found.status_code is not None:
                    response = StoredResponse(status_code=found.status_code, headers=found.headers, body=found.body)
                    return Claimed(outcome="answered", response=response)
                if found.created_at >= abandoned_before:
                    return Claimed(outcome="in_progress")
            self._connection.execute(update(IdempotencyKeyRow).where(this).values(**fresh))
            break
        return Claimed(outcome="started")

    def complete(self, principal: str, key: str, holder: str, response: StoredResponse) -> bool:
        """Keep the response; False when another request has taken the key over."""
        statement = update(IdempotencyKeyRow).where(_is(principal, key), _held_by(holder))
        values = {"status_code": response.status_code, "headers": response.headers, "body": response.body}
        return self._connection.execute(statement.values(**values)).rowcount > 0

    def forget(self, principal: str, key: str, holder: str) -> None:
        """Let the request be carried out again, since it came to nothing."""
        self._connection.execute(delete(IdempotencyKeyRow).where(_is(principal, key), _held_by(holder)))

    def purge(self, expired_before: datetime) -> int:
        """Remove what is older.

        Returns:
            How many.
        """
        statement = delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < expired_before)
        return self._connection.execute(statement).rowcount


def _is(principal: str, key: str) -> ColumnElement[bool]:
    return and_(IdempotencyKeyRow.principal == principal, IdempotencyKeyRow.key == key)


def _held_by(holder: str) -> ColumnElement[bool]:
    return and_(IdempotencyKeyRow.holder == holder, IdempotencyKeyRow.status_code.is_(None))
