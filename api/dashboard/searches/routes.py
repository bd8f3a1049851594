"""The list of searches, with the form to ask."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from api.auth import Principal, Reader, Writer, may_write
from api.conditional import body_of, conditional
from api.dashboard.rendering import checked, page, twin, wants_json
from api.dashboard.searches.again import form_of
from api.dashboard.searches.fields import fields
from api.dashboard.searches.form import Form, empty_form, question_of, typed_in, with_error
from api.routes import searches
from api.routes.common import Served
from api.schemas.queries import SearchesQuery
from api.state import State
from costmodel.errors import InvalidInput, UnreadableFile

router = APIRouter(include_in_schema=False)

_FILTERS = ("model", "cluster", "state", "status", "since")
_AGES = (
    ("", "any time"),
    ("PT1H", "last hour"),
    ("P1D", "last day"),
    ("P7D", "last week"),
    ("P30D", "last 30 days"),
)
_FROM = "from"
_LONGEST_ID = 40


@router.get("/")
def root() -> Response:
    """The first page is the list."""
    return RedirectResponse("/searches", 307)


@router.get("/searches.json")
@router.get("/searches")
def list_page(request: Request, state: Served, principal: Reader) -> Response:
    """The form and the searches, newest first; filtered and paged by the query string, also by parts of names.

    ``?from=ID`` fills the form with the question of that search; the JSON twin has no form.
    """
    query = checked(SearchesQuery, request, leaving_out=(_FROM,))
    if wants_json(request):
        return twin(conditional(request, body_of(searches.listed(state, query, parts=True))))
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
        raise form.refusal("body")
    return await run_in_threadpool(_list_page, state, principal, SearchesQuery(), form, 422)


def _list_page(state: State, principal: Principal, query: SearchesQuery, form: Form, status: int = 200) -> Response:
    found = searches.listed(state, query, parts=True)
    filters = {name: getattr(query, name) for name in _FILTERS}
    chosen = {name: value for name, value in filters.items() if value is not None}
    return page(
        "searches.html",
        status=status,
        fields=fields(),
        form=form,
        may_ask=may_write(principal),
        items=found.items,
        filters={name: value or "" for name, value in filters.items()},
        filtered=bool(chosen),
        ages=_ages(query.since or ""),
        opened=bool(form.errors or form.notes or not (found.items or chosen or query.cursor)),
        newest=f"/searches?{urlencode(chosen)}" if query.cursor else "",
        older=f"/searches?{urlencode({**chosen, 'limit': query.limit, 'cursor': found.next})}" if found.next else "",
        twin=f"/searches.json?{urlencode(query.model_dump(exclude_defaults=True))}".removesuffix("?"),
        now=datetime.now(UTC),
    )


def _ages(chosen: str) -> tuple[tuple[str, str], ...]:
    """The ages to choose from, with one that only an address names."""
    return _AGES if chosen in dict(_AGES) else (*_AGES, (chosen, f"within {chosen}"))


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
