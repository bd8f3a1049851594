"""The pages of studies: the list, one study as it goes, and the button that ends it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Reader, Writer, may_cancel
from api.dashboard.rendering import checked, document_of, page, twin, wants_json
from api.dashboard.studies import pictures, trials, verdict
from api.problems import not_found
from api.routes import studies
from api.routes.common import Served
from api.schemas.answers import StudyList
from api.schemas.queries import StudiesQuery

router = APIRouter(include_in_schema=False)

_TRIALS_A_PAGE = 100


class StudyQuery(BaseModel):
    """Which hundred of a study's trials, from 1."""

    model_config = ConfigDict(extra="forbid")

    page: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


@router.get("/studies.json")
@router.get("/studies")
def list_page(request: Request, state: Served, principal: Reader) -> Response:
    """Studies, newest first; filtered and paged by the query string."""
    query = checked(StudiesQuery, request)
    if wants_json(request):
        return twin(studies.list_studies(request, state, principal, query))
    found = StudyList.model_validate(document_of(studies.list_studies, state, principal, query))
    with state.store.reading() as repos:
        scenarios = repos.scenarios.get_many({item.scenario_id for item in found.items})
    chosen = {"state": query.state} if query.state else {}
    further = urlencode({**chosen, "limit": query.limit, "cursor": found.next})
    return page(
        "studies.html",
        items=[(item, scenarios.get(item.scenario_id)) for item in found.items],
        state=query.state or "",
        newest=f"/studies?{urlencode(chosen)}" if query.cursor else "",
        older=f"/studies?{further}" if found.next else "",
        twin=f"/studies.json?{urlencode(query.model_dump(exclude_defaults=True))}".removesuffix("?"),
        now=datetime.now(UTC),
    )


# The lower one is added first, and the other one's paths would match its pattern too.
@router.get("/studies/{study_id}")
@router.get("/studies/{study_id}.json")
def study_page(request: Request, study_id: str, state: Served, principal: Reader) -> Response:
    """A study as it stands; the page follows it for as long as it runs."""
    if wants_json(request):
        return twin(studies.get_study(request, study_id, state, principal))
    query = checked(StudyQuery, request)
    study = studies.study_told(state, study_id)
    with state.store.reading() as repos:
        record = repos.studies.get(study_id)
        scenario = None if record is None else repos.scenarios.get(record.scenario_id)
    if record is None or scenario is None:
        raise not_found("study", study_id)
    over = verdict.is_over(study)
    pages = max(1, -(-len(study.trials) // _TRIALS_A_PAGE))
    # The newest, unless others are asked for.
    shown = min(query.page or pages, pages)
    return page(
        "study.html",
        study=study,
        over=over,
        question=verdict.question(study, record, scenario),
        verdict=verdict.verdict(study),
        agreement=verdict.agreement(study),
        may_cancel=study.state in ("preparing", "open") and may_cancel(principal, record.created_by),
        course=pictures.course(study),
        against=pictures.against(study),
        columns=[name for _, name in trials.axes_of(study)],
        rows=trials.rows_of(study)[(shown - 1) * _TRIALS_A_PAGE : shown * _TRIALS_A_PAGE],
        earlier=f"/studies/{study_id}?page={shown - 1}#trials-title" if shown > 1 else "",
        later=f"/studies/{study_id}?page={shown + 1}#trials-title" if shown < pages else "",
        failures=trials.failures_of(study),
        pair=verdict.best_two(study),
        now=datetime.now(UTC),
    )


@router.post("/studies/{study_id}/cancel")
def cancel(study_id: str, state: Served, principal: Writer) -> Response:
    """The button of a study that goes on."""
    studies.cancel_study(study_id, state, principal)
    return RedirectResponse(f"/studies/{study_id}", 303)
