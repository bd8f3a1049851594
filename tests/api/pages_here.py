"""Pages without a server: their routers in an application of their own, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
from fastapi import APIRouter, FastAPI

from api import problems
from api.dashboard.error_pages import ErrorPages
from api.dashboard.fidelity.working import Workings
from api.metrics import Metrics
from api.settings import Settings
from api.state import State
from db.store import Store
from tests.api.pages import BROWSER, Page


class Here:
    """An application that asks for no keys, and its store."""

    def __init__(self, app: FastAPI, store: Store) -> None:
        self.app, self.store = app, store

    def fetch(self, path: str, **headers: str) -> httpx.Response:
        """What a browser gets, unless the headers say otherwise."""

        async def got() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                sent = httpx.Headers(BROWSER)
                sent.update(headers)
                return await client.get(path, headers=sent)

        return asyncio.run(got())

    def page(self, path: str, status: int = 200) -> Page:
        """A page, taken apart."""
        response = self.fetch(path)
        assert response.status_code == status, response.text
        return Page(source=response.text)

    def json(self, path: str, status: int = 200) -> Any:
        """The JSON of a page."""
        response = self.fetch(path, accept="application/json")
        assert response.status_code == status, response.text
        return response.json()


@contextmanager
def pages_here(folder: Path, *routers: APIRouter) -> Iterator[Here]:
    """These pages on a new store."""
    app = FastAPI()
    problems.install(app)
    for router in routers:
        app.include_router(router)
    app.add_middleware(ErrorPages)
    app.state.fidelity = Workings()
    with Store.open(f"sqlite:///{folder / 'planner.db'}") as store:
        nobody = cast(Any, None)
        app.state.planner = State(
            settings=Settings(needs_keys=False),
            metrics=Metrics(),
            store=store,
            runner=nobody,
            waiters=nobody,
            endings=nobody,
        )
        yield Here(app, store)
