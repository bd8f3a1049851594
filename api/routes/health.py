"""For whoever watches the server: alive, ready, counters."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel

from api.auth import Reader
from api.problems import problem_object, problem_response
from api.routes.common import Served, problems
from api.state import State
from db.errors import StoreUnavailable

router = APIRouter(tags=["health"])

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Alive(BaseModel):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(BaseModel):
    """Questions can be answered."""

    status: Literal["ready"] = "ready"
    database: str
    revision: str


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> Alive:
    """Touches nothing: it answers as long as the process does."""
    return Alive()


@router.get("/readyz", response_model=Ready, responses={503: problems()[503]}, summary="Can it answer questions?")
def readyz(state: Served) -> Response:
    """The database can be reached, a process that searches is up, and the server isn't stopping."""
    reason, revision = _readiness(state)
    if reason:
        return problem_response(problem_object(503, reason, slug="not-ready"), {"Retry-After": "5"})
    ready = Ready(database=state.store.backend, revision=revision)
    return Response(ready.model_dump_json(), media_type="application/json")


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()},
    summary="Counters for Prometheus",
)
def metrics(state: Served, principal: Reader) -> Response:
    """In Prometheus' text format; of this server alone, except for what waits. The scope ``read`` will do."""
    state.metrics.ready.set(0 if _readiness(state)[0] else 1)
    state.metrics.running.set(state.runner.running)
    # Without the database the others are told as they were.
    with suppress(StoreUnavailable):
        state.endings.count()
        with state.store.reading() as repos:
            state.metrics.waiting.set(repos.searches.waiting())
    return Response(state.metrics.text(), media_type=_TEXT)


def _readiness(state: State) -> tuple[str, str]:
    """Why no question can be answered, empty if they can; and the revision of the database."""
    if state.stopping.is_set():
        return "the server is stopping", ""
    try:
        state.store.ping()
        revision = state.store.revision() or ""
    except StoreUnavailable:
        return "the results database can't be reached", ""
    return ("" if state.runner.ready else "no process that searches has started"), revision
