"""What a server does by itself every now and then.

It removes the keys of requests that nobody can repeat any more, and ends trials of cancelled studies whose worker died:
other workers would, where there are any.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from api.idempotency import KEPT
from costmodel.errors import PlannerError
from db.store import Store
from planner.studying.settings import END_WITH_THEIR_WORKER

_LOG = logging.getLogger("planner.api")
_EVERY_S = 60.0


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
            removed, ended = await asyncio.to_thread(_tidy_once, store)
        except PlannerError as error:
            _LOG.warning("nothing is tidied up: %s", error)
        else:
            if removed:
                _LOG.info("%d old idempotency keys were removed", removed, extra={"removed": removed})
            if ended:
                _LOG.info("%d trials without a worker were ended", ended, extra={"ended": ended})
        await asyncio.sleep(every_s)


def _tidy_once(store: Store) -> tuple[int, int]:
    now = datetime.now(UTC)
    with store.writing() as repos:
        return repos.idempotency.purge(now - KEPT), repos.studies.close_left(END_WITH_THEIR_WORKER, now)
