"""One search: its page, its plans as CSV, the changes that would make it fit, and its end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from api.auth import Reader, Writer
from api.dashboard import words
from api.dashboard.rendering import page, twin, wants_json
from api.dashboard.searches import ranking, verdict
from api.dashboard.searches.again import scaling_address, values_of, why_not_again
from api.dashboard.searches.exporting import csv_of
from api.dashboard.searches.kept import Kept, Known
from api.dashboard.searches.pictures import axes_of, front_of
from api.problems import ProblemRaised, not_found
from api.routes import searches
from api.routes.common import Served
from api.schemas.requests import SearchBody
from api.state import State
from db import records
from planner.meanings import meaning_of

router = APIRouter(prefix="/searches", include_in_schema=False)

# What the page shows of an answer, and a search without one lacks.
_ONCE_DONE = ("warnings", "infeasibility", "eliminated", "earlier", "explanation")
Json = dict[str, Any]


@router.get("/{search_id}.csv")
def plans_as_csv(request: Request, search_id: str, state: Served, principal: Reader) -> Response:
    """The plans of a search, best first; a header alone for as long as there are none."""
    known = _kept(request).read(state.store, search_id)
    headers = {"Content-Disposition": f'attachment; filename="search-{search_id[:8]}.csv"'}
    return Response(csv_of(known.plans), 200, headers, "text/csv; charset=utf-8")


# The lower one is added first, and the other one's paths would match its pattern too.
@router.get("/{search_id}")
@router.get("/{search_id}.json")
def search_page(request: Request, search_id: str, state: Served, principal: Reader) -> Response:
    """A search as it stands; it looks again by itself for as long as it runs."""
    if wants_json(request):
        return twin(searches.get_search(request, search_id, state, principal))
    query = _table_query(request)
    known = _kept(request).read(state.store, search_id)
    search, scenario, answer, plans = known.search, known.scenario, known.answer, known.plans
    shown: Json = {
        "search": dict.fromkeys(_ONCE_DONE) | answer,
        "headline": verdict.headline(answer["scenario"]),
        "question": verdict.question(answer),
        "verdict": verdict.verdict(answer),
        "step": _last_step(state, search),
        "cancelling": search.cancel_requested,
        "may_ask": "write" in principal.scopes,
        "why_not_again": why_not_again(scenario),
        "scaling": scaling_address(search, scenario),
        "basis": verdict.basis(answer) if search.state == "done" else [],
        "table": ranking.table_of(request.url.path, plans, query) if plans else None,
        "front": front_of(answer) if plans else None,
        "axes": axes_of(plans),
        "usable_gib": ranking.usable_gib(plans) if plans else "",
        "meaning_of": meaning_of,
        "now": datetime.now(UTC),
    }
    return page("search.html", **shown)


@router.post("/{search_id}/cancel")
def cancel(search_id: str, state: Served, principal: Writer) -> Response:
    """The button of a search that waits or runs."""
    searches.cancel_search(search_id, state, principal)
    return RedirectResponse(f"/searches/{search_id}", 303)


@router.post("/{search_id}/relaxations/{place}")
async def ask_relaxed(request: Request, search_id: str, place: int, state: Served, principal: Writer) -> Response:
    """Ask the question with one of the changes that would make it fit, the first of which is at place 1."""
    known = await run_in_threadpool(_kept(request).read, state.store, search_id)
    body = _relaxed(known, place)
    asked = await searches.create_search(request, body, state, principal)
    return RedirectResponse(asked.headers["location"].removeprefix("/v1"), 303)


def _relaxed(known: Known, place: int) -> SearchBody:
    relaxations = (known.answer.get("infeasibility") or {}).get("relaxations") or []
    if not 1 <= place <= len(relaxations):
        raise not_found("relaxation", str(place))
    if reason := why_not_again(known.scenario):
        raise ProblemRaised(422, reason)
    values = values_of(known.search, known.scenario) | relaxations[place - 1]["fields"]
    return SearchBody.model_validate({name: value for name, value in values.items() if value is not None})


def _kept(request: Request) -> Kept:
    kept: Kept = request.app.state.answers
    return kept


def _last_step(state: State, search: records.Search) -> str:
    """How far a search is that is not over, in words."""
    if search.finished_at is not None:
        return ""
    with state.store.reading() as repos:
        events = repos.events.after(search.id, 0)
    return words.step(events[-1].kind, events[-1].data, search.objective) if events else ""


def _table_query(request: Request) -> ranking.TableQuery:
    given: dict[str, Any] = dict(request.query_params)
    if "plan" in given:
        given["plan"] = request.query_params.getlist("plan")
    try:
        return ranking.TableQuery.model_validate(given)
    except ValidationError as error:
        raise RequestValidationError([{**found, "loc": ("query", *found["loc"])} for found in error.errors()]) from None
