"""The pages: the list of searches with the form to ask, and one search."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from api.auth import Principal, Reader, Writer
from api.dashboard import words
from api.dashboard.rendering import page, twin, wants_json
from api.dashboard.searches import ranking, verdict
from api.dashboard.searches.again import form_of, why_not_again
from api.dashboard.searches.fields import fields
from api.dashboard.searches.form import Form, empty_form, question_of, typed_in, with_error
from api.problems import not_found
from api.routes import searches
from api.routes.common import Served
from api.schemas.answers import SearchList
from api.schemas.queries import SearchesQuery
from api.state import State
from costmodel.errors import InvalidInput, UnreadableFile
from planner.stored.answers import stored_answer

router = APIRouter(include_in_schema=False)

# What the page shows of an answer, and a search without one lacks.
_ONCE_DONE = ("warnings", "infeasibility", "eliminated", "earlier", "explanation")
_FILTERS = ("model", "cluster", "state", "status")
_FROM = "from"
_LONGEST_ID = 40


@router.get("/")
def root() -> Response:
    """The first page is the list."""
    return RedirectResponse("/searches", 307)


@router.get("/searches.json")
@router.get("/searches")
def list_page(request: Request, state: Served, principal: Reader) -> Response:
    """The form and the searches, newest first; filtered and paged by the query string.

    ``?from=ID`` fills the form with the question of that search.
    """
    if wants_json(request):
        return twin(searches.list_searches(request, state, principal, _list_query(request)))
    query = _list_query(request, leaving_out=_FROM)
    return _list_page(state, principal, query, _first_form(state, request.query_params.get(_FROM)))


@router.post("/searches")
async def ask(request: Request, state: Served, principal: Writer) -> Response:
    """What the form sends: the same as ``POST /v1/searches``. What is wrong is said at its field."""
    typed = await typed_in(request)
    body, form = await run_in_threadpool(question_of, typed)
    if body is not None:
        try:
            asked = await searches.create_search(request, body, state, principal)
        except InvalidInput as error:
            if wants_json(request) or isinstance(error, UnreadableFile):
                raise
            form = with_error(form, error)
        else:
            return RedirectResponse(asked.headers["location"].removeprefix("/v1"), 303)
    if wants_json(request):
        raise RequestValidationError(
            [
                {"loc": ("body", name), "msg": text, "type": "value_error"}
                for name, texts in form.errors.items()
                for text in texts
            ]
        )
    return await run_in_threadpool(_list_page, state, principal, SearchesQuery(), form, 422)


# The lower one is added first, and the other one's paths would match its pattern too.
@router.get("/searches/{search_id}")
@router.get("/searches/{search_id}.json")
def search_page(request: Request, search_id: str, state: Served, principal: Reader) -> Response:
    """A search as it stands; it looks again by itself for as long as it runs."""
    if wants_json(request):
        return twin(searches.get_search(request, search_id, state, principal))
    with state.store.reading() as repos:
        search = repos.searches.get(search_id)
        if search is None:
            raise not_found("search", search_id)
        answer = stored_answer(repos, search)
        scenario = repos.scenarios.get(search.scenario_id)
        events = [] if search.finished_at is not None else repos.events.after(search_id, 0)
    assert scenario is not None, "foreign keys hold"
    plans = answer.get("plans") or []
    shown: dict[str, Any] = {
        "search": dict.fromkeys(_ONCE_DONE) | answer,
        "headline": verdict.headline(answer["scenario"]),
        "question": verdict.question(answer),
        "verdict": verdict.verdict(answer),
        "step": words.step(events[-1].kind, events[-1].data, search.objective) if events else "",
        "cancelling": search.cancel_requested,
        "may_ask": _may_write(principal),
        "why_not_again": why_not_again(scenario),
        "basis": verdict.basis(answer) if search.state == "done" else [],
        "groups": ranking.groups_of(plans),
        "rows": ranking.rows_of(plans),
        "usable_gib": ranking.usable_gib(plans) if plans else "",
        "now": datetime.now(UTC),
    }
    return page("search.html", **shown)


@router.post("/searches/{search_id}/cancel")
def cancel(search_id: str, state: Served, principal: Writer) -> Response:
    """The button of a search that waits or runs."""
    searches.cancel_search(search_id, state, principal)
    return RedirectResponse(f"/searches/{search_id}", 303)


def _list_page(state: State, principal: Principal, query: SearchesQuery, form: Form, status: int = 200) -> Response:
    # Read from the JSON twin, so that the two can't differ; asked without conditions, it always has a body.
    answer = searches.list_searches(Request({"type": "http", "headers": []}), state, principal, query)
    found = SearchList.model_validate_json(bytes(answer.body))
    filters = {name: getattr(query, name) for name in _FILTERS}
    chosen = {name: value for name, value in filters.items() if value is not None}
    return page(
        "searches.html",
        status=status,
        fields=fields(),
        form=form,
        may_ask=_may_write(principal),
        items=found.items,
        filters={name: value or "" for name, value in filters.items()},
        filtered=bool(chosen),
        newest=f"/searches?{urlencode(chosen)}" if query.cursor else "",
        older=f"/searches?{urlencode({**chosen, 'limit': query.limit, 'cursor': found.next})}" if found.next else "",
        now=datetime.now(UTC),
    )


def _first_form(state: State, search_id: str | None) -> Form:
    """The form as it is opened: with an example, or with the question of a search."""
    if not search_id:
        return empty_form()
    with state.store.reading() as repos:
        search = repos.searches.get(search_id)
        scenario = None if search is None else repos.scenarios.get(search.scenario_id)
    if search is None or scenario is None:
        note = f"There is no search {search_id[:_LONGEST_ID]!r} to start from: this is an example."
        return replace(empty_form(), notes=(note,))
    return form_of(search, scenario)


def _list_query(request: Request, *, leaving_out: str = "") -> SearchesQuery:
    """The API's parameters; those that a form left empty are none."""
    given = {name: text for name, text in request.query_params.items() if text and name != leaving_out}
    try:
        return SearchesQuery.model_validate(given)
    except ValidationError as error:
        raise RequestValidationError([{**found, "loc": ("query", *found["loc"])} for found in error.errors()]) from None


def _may_write(principal: Principal) -> bool:
    return "write" in principal.scopes
