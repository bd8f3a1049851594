"""``/v1/studies``: have plans tried on real machines, look how they do, stop.

Nothing is run here. Workers (``planner worker --runner``) take studies from the store, and what they start is in a file
of their own: a request only says the name of a runner.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.auth import KeyFirst, Principal, Reader, Writer, check_may_cancel
from api.conditional import body_of, conditional
from api.idempotency import REPLAYED, IdempotencyKey, Once
from api.paging import NEWEST_FIRST, cursor_of, place_of
from api.problems import not_found
from api.questions import study_request, study_settings
from api.routes.common import Served, StudyId, now, problems
from api.schemas.answers import ListedStudy, Study, StudyList
from api.schemas.queries import StudiesQuery
from api.schemas.requests import StudyBody
from api.state import State
from costmodel.errors import InvalidInput
from db.repositories import Repositories
from planner.studying.opening import put_study
from planner.studying.progress import Progress
from planner.studying.settings import END_WITH_THEIR_WORKER
from planner.studying.telling import study_alone, study_in_words

router = APIRouter(prefix="/v1/studies", tags=["studies"], route_class=KeyFirst)

_LINKS = {
    "self": {"operationId": "get_study", "parameters": {"study_id": "$response.body#/id"}},
    "cancel": {"operationId": "cancel_study", "parameters": {"study_id": "$response.body#/id"}},
}
_CANCELLED = "it was cancelled"


@router.post(
    "",
    status_code=202,
    response_model=Study,
    responses={
        202: {"description": "It waits for a worker: follow `Location`.", "links": _LINKS},
        **problems(400, 409, 413, 415),
    },
    summary="Have plans tried on real machines",
)
def create_study(body: StudyBody, state: Served, principal: Writer, key: IdempotencyKey = None) -> Response:
    """Workers that were started with its runner take it up: `planner worker --runner slurm --launch FILE`.

    A request that is sent again with its key gets the same study as it stands then.
    """
    once = Once(state.store, principal, key, "POST /v1/studies", body)
    earlier = once.claim()
    if earlier is not None:
        path = str(earlier.headers["location"])
        found = study_told(state, path.rpartition("/")[2])
        return Response(body_of(found), 202, {"Location": path, REPLAYED: "true"}, "application/json")
    with once.or_forgotten():
        study_id = _opened(once, body, state, principal)
        found = study_told(state, study_id)
    return Response(body_of(found), 202, {"Location": _path_of(study_id)}, "application/json")


def _opened(once: Once, body: StudyBody, state: State, principal: Principal) -> str:
    request, settings = study_request(body, state.settings), study_settings(body)
    try:
        with state.store.writing() as repos:
            study = put_study(repos, request, settings, name=body.name, now=now(), created_by=principal.id)
            # Where it is, and not how it stands, which changes.
            once.complete(repos, Response(status_code=202, headers={"Location": _path_of(study.id)}))
    except InvalidInput as error:
        if error.field == "study":
            error.field = "name"
        raise
    return study.id


def _path_of(study_id: str) -> str:
    return f"/v1/studies/{study_id}"


@router.get("", response_model=StudyList, responses=problems(304), summary="List studies, newest first")
def list_studies(
    request: Request, state: Served, principal: Reader, query: Annotated[StudiesQuery, Query()]
) -> Response:
    """Filtered by state. Trials are told one study at a time."""
    place = place_of(query.cursor, NEWEST_FIRST, query.filters, by_time=True)
    with state.store.reading() as repos:
        page = repos.studies.list(place, query.limit, **query.filters)
    items = [ListedStudy.model_validate(study_alone(item)) for item in page.items]
    further = cursor_of(page.next, NEWEST_FIRST, query.filters)
    return conditional(request, body_of(StudyList(items=items, next=further)))


@router.get("/{study_id}", response_model=Study, responses=problems(304, 404), summary="A study and its trials")
def get_study(request: Request, study_id: StudyId, state: Served, principal: Reader) -> Response:
    """As it stands, predicted beside measured: poll with ``If-None-Match``, or listen to ``/events``."""
    return conditional(request, body_of(study_told(state, study_id)))


@router.post(
    "/{study_id}/cancel",
    status_code=202,
    response_model=Study,
    responses={200: {"model": Study, "description": "It is over."}, **problems(404, 413, 415)},
    summary="Stop a study",
)
def cancel_study(study_id: StudyId, state: Served, principal: Writer) -> Response:
    """Nothing new is begun, and trials that run are stopped by their workers; what was measured stays.

    One that is over stays as it is.
    """
    with state.store.reading() as repos:
        found = repos.studies.get(study_id)
    if found is None:
        raise not_found("study", study_id)
    check_may_cancel(principal, found.created_by)
    with state.store.writing() as repos:
        repos.studies.end(study_id, "stopped", _CANCELLED, now())
        repos.studies.close_left(END_WITH_THEIR_WORKER, now())
        told = _told(repos, study_id)
    runs = any(trial.state == "running" for trial in told.trials)
    return Response(body_of(told), 202 if runs else 200, {"Location": _path_of(study_id)}, "application/json")


def study_told(state: State, study_id: str) -> Study:
    """The study with its trials.

    Raises:
        ProblemRaised: there is no such study.
    """
    with state.store.reading() as repos:
        return _told(repos, study_id)


def _told(repos: Repositories, study_id: str) -> Study:
    found = repos.studies.get(study_id)
    if found is None:
        raise not_found("study", study_id)
    return Study.model_validate(study_in_words(Progress.of(repos, found, tried_only=True)))
