"""Keys of the API. Their secrets are random and long, so a plain digest of them is enough to tell them by."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select, update

from costmodel.errors import InvalidInput
from db.column_types import is_storable
from db.records import ApiKey
from db.repositories.statements import insert_unless_there, table_of, values_of
from db.tables import ApiKeyRow


class ApiKeys:
    """Keys with their scopes; names are unique, also among revoked ones."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, record: ApiKey, secret_sha256: str) -> None:
        """Keep a key.

        Args:
            secret_sha256: hex digits.

        Raises:
            InvalidInput: another key has, or had, that name.
        """
        values = {**values_of(record), "scopes": list(record.scopes), "secret_sha256": secret_sha256}
        if not insert_unless_there(self._connection, ApiKeyRow, values, ("name",)):
            raise InvalidInput("name", record.name, "a name that no other key has or had is expected")

    def by_digest(self, sha256: str) -> ApiKey | None:
        """The key of that secret, also one that is revoked or expired."""
        if not is_storable(sha256):
            return None
        query = select(table_of(ApiKeyRow)).where(ApiKeyRow.secret_sha256 == sha256)
        row = self._connection.execute(query).one_or_none()
        return None if row is None else _key(row)

    def list(self) -> list[ApiKey]:
        """All keys by their names."""
        return [_key(row) for row in self._connection.execute(select(table_of(ApiKeyRow)).order_by(ApiKeyRow.name))]

    def revoke(self, name: str, now: datetime) -> bool:
        """End a key; False when there is no such key, or it is revoked already."""
        statement = update(ApiKeyRow).where(ApiKeyRow.name == name, ApiKeyRow.revoked_at.is_(None))
        return self._connection.execute(statement.values(revoked_at=now)).rowcount > 0

    def touch(self, id: str, now: datetime) -> None:
        """Note that a key was used."""
        self._connection.execute(update(ApiKeyRow).where(ApiKeyRow.id == id).values(last_used_at=now))


def _key(row: Row[Any]) -> ApiKey:
    found = dict(row._mapping)
    del found["secret_sha256"]
    return ApiKey(**{**found, "scopes": tuple(found["scopes"])})
