"""The application: ``create_app`` is what uvicorn is handed, as ``api.app:create_app``."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import metadata
from types import FrameType
from typing import Any

from fastapi import Depends, FastAPI

from api import connections, problems
from api.auth import DOCUMENTED
from api.dashboard.install import install as install_pages
from api.documentation import DESCRIPTION, openapi_of
from api.endings import Endings
from api.housekeeping import tidied
from api.metrics import Metrics
from api.middleware import RequestMiddleware
from api.routes import catalog, events, health, measurements, plans, predictions, searches, studies, study_events
from api.routes.common import given_once, none_unknown
from api.settings import Settings
from api.state import State, Waiters
from costmodel.catalog import folders
from db.store import Store
from planner.serving import search_runner

_ENDS_WITHIN_S = 5.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def create_app(settings: Settings | None = None) -> FastAPI:
    """An application with its own store, worker processes and counters, which live as long as it runs.

    Args:
        settings: None to read them from the environment.

    Raises:
        InvalidInput: a variable of the environment holds something unusable.
    """
    chosen = settings or Settings.of_environment()
    # Otherwise every question would fail, one by one.
    folders.user_dir()
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        connections.prepare()
        store = Store.open(chosen.database_url)
        store.lock_for_serving()
        waiters = Waiters(asyncio.get_running_loop())
        runner = search_runner(store, chosen.slots)
        endings = Endings(store, metrics)
        for listener in (waiters.changed, endings.changed):
            runner.subscribe(listener)
        state = State(settings=chosen, metrics=metrics, store=store, runner=runner, waiters=waiters, endings=endings)
        app.state.planner = state
        runner.start()
        try:
            async with tidied(store):
                with _told_at_once(state.stopping.set):
                    yield
        finally:
            state.stopping.set()
            await asyncio.to_thread(runner.close, _ENDS_WITHIN_S)
            store.close()

    app = FastAPI(
        title="Parallelism planner",
        version=metadata.version("parallelism-planner"),
        description=DESCRIPTION,
        lifespan=lifespan,
        # FastAPI's own pages load scripts from a host on the internet.
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        # Another path than ours is unknown, also with a slash too many.
        redirect_slashes=False,
    )
    app.add_middleware(
        RequestMiddleware,
        metrics=metrics,
        loopback_only=not chosen.needs_keys,
        most_body_bytes=chosen.most_body_bytes,
    )
    problems.install(app)
    app.include_router(health.router)
    for router in (
        searches.router,
        events.router,
        plans.router,
        predictions.router,
        measurements.router,
        studies.router,
        study_events.router,
        catalog.router,
    ):
        app.include_router(router, dependencies=[*DOCUMENTED, Depends(given_once), Depends(none_unknown)])
    install_pages(app)
    app.openapi = openapi_of(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend the document
    return app


class _told_at_once:  # used as a context manager, like a function
    """Calls ``tell`` when a signal to stop arrives, before the server that also handles it waits for open requests."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        # Only the main thread may set handlers; elsewhere (tests) whoever runs the application ends it.
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.getsignal(number)
                signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._tell()
        handler = self._before.get(signal.Signals(number))
        if callable(handler):
            handler(number, frame)
