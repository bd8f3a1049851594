"""What a server does by itself every now and then: it removes the keys of requests that nobody can repeat any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from api.idempotency import KEPT
from costmodel.errors import PlannerError
from db.store import Store

_LOG = logging.getLogger("planner.api")
_EVERY_S = 600.0


@asynccontextmanager
async def tidied(store: Store, every_s: float = _EVERY_S) -> AsyncIterator[None]:
    """Tidy up at the start of the block, and regularly within it.

    Args:
        every_s: seconds in between.
    """
    task = asyncio.create_task(_tidy(store, every_s))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _tidy(store: Store, every_s: float) -> None:
    while True:
        try:
            removed = await asyncio.to_thread(_purge, store)
        except PlannerError as error:
            _LOG.warning("old idempotency keys are not removed: %s", error)
        else:
            if removed:
                _LOG.info("%d old idempotency keys were removed", removed, extra={"removed": removed})
        await asyncio.sleep(every_s)


def _purge(store: Store) -> int:
    with store.writing() as repos:
        return repos.idempotency.purge(datetime.now(UTC) - KEPT)
