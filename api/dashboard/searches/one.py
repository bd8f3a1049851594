"""One search: its page, its plans as CSV, the changes that would make it fit, and its end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import ValidationError

from api.auth import Principal, Reader, Writer, may_cancel, may_write
from api.dashboard import words
from api.dashboard.rendering import checked, document_of, page, twin, wants_json
from api.dashboard.searches import ranking, verdict
from api.dashboard.searches.again import notes_of, scaling_address, why_not_again
from api.dashboard.searches.exporting import csv_of
from api.dashboard.searches.kept import KeptAnswers, Known
from api.dashboard.searches.objective_columns import ranked_by
from api.dashboard.searches.pictures import axes_of, front_of
from api.dashboard.searches.shortlist import shortlist_of
from api.problems import ProblemRaised, not_found
from api.questions import check_deadline
from api.routes import searches
from api.routes.common import Served
from api.routes.searches import ask_request
from api.state import State
from db import records
from planner.meanings import meaning_of
from planner.search.request import SearchRequest
from planner.stored.changed import changed
from planner.stored.questions import request_as_stored

router = APIRouter(prefix="/searches", include_in_schema=False)

# What the page shows of an answer, and a search without one lacks.
_ONCE_DONE = ("warnings", "infeasibility", "eliminated", "earlier", "explanation")
Json = dict[str, Any]


@router.get("/{search_id}.csv")
def plans_as_csv(request: Request, search_id: str, state: Served, principal: Reader) -> Response:
    """The plans of a search as the page sorts them, all parts; a header alone for as long as there are none."""
    query = _table_query(request)
    known = _kept(request).read(state.store, search_id)
    plans = ranking.in_order(known.plans, query, ranked_by(known.answer)) if known.plans else []
    headers = {"Content-Disposition": f'attachment; filename="search-{search_id[:8]}.csv"'}
    return Response(csv_of(plans), 200, headers, "text/csv; charset=utf-8")


# The lower one is added first, and the other one's paths would match its pattern too.
@router.get("/{search_id}")
@router.get("/{search_id}.json")
def search_page(request: Request, search_id: str, state: Served, principal: Reader) -> Response:
    """A search as it stands; it looks again by itself for as long as it runs."""
    query = _table_query(request)
    if wants_json(request):
        return twin(_answer_json(request, search_id, state, principal, query))
    known = _kept(request).read(state.store, search_id)
    search, scenario, answer, plans = known.search, known.scenario, known.answer, known.plans
    shown: Json = {
        "search": dict.fromkeys(_ONCE_DONE) | answer,
        "headline": verdict.headline(answer["scenario"]),
        "question": verdict.question(answer),
        "verdict": verdict.verdict(answer),
        "step": _last_step(state, search),
        "cancelling": search.cancel_requested,
        "may_ask": may_write(principal),
        "may_cancel": may_cancel(principal, search.created_by),
        "why_not_again": why_not_again(scenario),
        "again_notes": notes_of(search, scenario),
        "scaling": scaling_address(search, scenario),
        "basis": verdict.basis(answer) if search.state == "done" else [],
        "table": ranking.table_of(request.url.path, plans, query, ranked_by(answer)) if plans else None,
        "shortlist": shortlist_of(answer) if plans else None,
        "per": (answer.get("batches") or {}).get("per", "step"),
        "front": front_of(answer) if plans else None,
        "axes": axes_of(plans),
        "usable_gib": ranking.usable_gib(plans) if plans else "",
        "meaning_of": meaning_of,
        "now": datetime.now(UTC),
    }
    return page("search.html", **shown)


def _answer_json(
    request: Request, search_id: str, state: State, principal: Principal, query: ranking.TableQuery
) -> Response:
    """The API's answer; where another order is asked for, with its plans in that."""
    if (query.sort, query.order) == (ranking.USUAL.sort, ranking.USUAL.order):
        return searches.get_search(request, search_id, state, principal)
    answer = document_of(searches.get_search, search_id, state, principal)
    if answer.get("plans"):
        answer["plans"] = ranking.in_order(answer["plans"], query, ranked_by(answer))
    return JSONResponse(answer)


@router.post("/{search_id}/cancel")
def cancel(search_id: str, state: Served, principal: Writer) -> Response:
    """The button of a search that waits or runs."""
    searches.cancel_search(search_id, state, principal)
    return RedirectResponse(f"/searches/{search_id}", 303)


@router.post("/{search_id}/relaxations/{place}")
def ask_relaxed(request: Request, search_id: str, place: int, state: Served, principal: Writer) -> Response:
    """Ask the question with one of the changes that would make it fit, the first of which is at place 1.

    All else is what was asked about, as it is stored, whatever the catalog has under these names.
    """
    known = _kept(request).read(state.store, search_id)
    relaxations = (known.answer.get("infeasibility") or {}).get("relaxations") or []
    if not 1 <= place <= len(relaxations):
        raise not_found("relaxation", str(place))
    asked = ask_request(_relaxed(state, known, relaxations[place - 1]["fields"]), state, principal)
    return RedirectResponse(f"/searches/{asked.id}", 303)


def _relaxed(state: State, known: Known, fields: Json) -> SearchRequest:
    check_deadline(known.search.max_seconds, state.settings)
    try:
        with state.store.reading() as repos:
            stored = request_as_stored(repos, known.search)
    except ValidationError:
        reason = "another version of the planner stored this question, and this one can't read it: ask it anew"
        raise ProblemRaised(422, reason) from None
    return changed(stored, fields)


def _table_query(request: Request) -> ranking.TableQuery:
    return checked(ranking.TableQuery, request, lists=("plan",))


def _kept(request: Request) -> KeptAnswers:
    kept: KeptAnswers = request.app.state.answers
    return kept


def _last_step(state: State, search: records.Search) -> str:
    """How far a search is that is not over, in words."""
    if search.finished_at is not None:
        return ""
    with state.store.reading() as repos:
        events = repos.events.after(search.id, 0)
    return words.step(events[-1].kind, events[-1].data, search.objective) if events else ""
