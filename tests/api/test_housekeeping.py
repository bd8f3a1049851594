"""What a server does by itself: keys of requests do not stay for ever."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from api.housekeeping import tidied
from api.idempotency import ABANDONED, KEPT
from db.store import Store


def _claim(store: Store, key: str, age: timedelta) -> None:
    then = datetime.now(UTC) - age
    with store.writing() as repos:
        repos.idempotency.claim("me", key, "POST /", "0" * 64, "me", then, then - ABANDONED, then - KEPT)


def _keys(store: Store) -> set[str]:
    with store.reading() as repos:
        return set(repos.connection.execute(text("SELECT key FROM idempotency_keys")).scalars())


def test_old_keys_are_removed_at_the_start_and_regularly(store_url: str) -> None:
    with Store.open(store_url) as store:
        _claim(store, "old", KEPT + timedelta(minutes=1))
        _claim(store, "new", KEPT - timedelta(minutes=1))

        async def serve() -> list[set[str]]:
            seen = []
            async with tidied(store, every_s=0.05):
                for _ in range(2):
                    for _ in range(100):
                        await asyncio.sleep(0.05)
                        if "old" not in _keys(store):
                            break
                    seen.append(_keys(store))
                    _claim(store, "old", KEPT + timedelta(minutes=1))
            return seen

        assert asyncio.run(serve()) == [{"new"}, {"new"}]
