"""``/v1/studies/{id}/events``: how a study stands, as server-sent events.

Workers write to the store and know nobody who listens, so the store is looked at once a second. There is no list of
events that could be taken up in the middle: whoever comes back is told how everything stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api.auth import KeyFirst, Reader
from api.problems import not_found
from api.routes.common import LOOK_AGAIN_S, LastEventId, Served, StudyId, problems
from api.routes.studies import study_told
from api.schemas.answers import Study
from api.schemas.answers.studies import STUDY_OVER
from api.state import State

router = APIRouter(prefix="/v1/studies", tags=["studies"], route_class=KeyFirst)

_ALL_TOLD = "over"


def _listened_to(study_id: StudyId, state: Served, principal: Reader, last_event_id: LastEventId = None) -> Study:
    """The study, unless there is nothing left to be told: a browser that gets 204 does not come back."""
    study = study_told(state, study_id)
    if _is_over(study) and last_event_id == _ALL_TOLD:
        raise HTTPException(204)
    return study


@router.get(
    "/{study_id}/events",
    response_class=EventSourceResponse,
    responses={204: {"description": "The study is over, and `Last-Event-ID` was its last event."}, **problems(404)},
    summary="How a study stands, as server-sent events",
)
async def study_events(
    request: Request, state: Served, study: Annotated[Study, Depends(_listened_to)]
) -> AsyncIterable[ServerSentEvent]:
    """Ends with the study. First how it stands, then what changes.

    `study` is a study as lists have it, `trial` one of its trials; in the end comes one of `done`, `stopped` and
    `failed`, with the study. ``data`` is a JSON object.
    """
    # Something at once, so that whatever is in between passes the beginning on.
    yield ServerSentEvent(comment="listening")
    told: dict[int | None, str] = {}
    marks: object = None
    while not state.stopping.is_set():
        seen = await run_in_threadpool(_marks_of, state, study.id)
        if seen != marks:
            marks = seen
            study = await run_in_threadpool(study_told, state, study.id)
            for trial in study.trials:
                if told.get(trial.number) != (said := trial.model_dump_json()):
                    told[trial.number] = said
                    yield ServerSentEvent(event="trial", data=trial.model_dump(mode="json"))
            alone = study.model_dump(mode="json", exclude={"trials"})
            if _is_over(study):
                yield ServerSentEvent(event=study.state, id=_ALL_TOLD, data=alone)
                return
            if told.get(None) != (said := study.model_dump_json(exclude={"trials"})):
                told[None] = said
                yield ServerSentEvent(event="study", data=alone)
        await asyncio.sleep(LOOK_AGAIN_S)


def _is_over(study: Study) -> bool:
    """Nothing of it runs any more, so nothing is left to change."""
    return study.state in STUDY_OVER and all(trial.state == "done" for trial in study.trials)


def _marks_of(state: State, study_id: str) -> object:
    """What differs when anything that is told has changed; much less than all of it."""
    with state.store.reading() as repos:
        study = repos.studies.get(study_id)
        trials = repos.studies.trials(study_id)
    if study is None:
        raise not_found("study", study_id)
    return (
        study.state,
        study.most_trials,
        study.deadline,
        [(of.number, of.state, of.attempt, of.owner) for of in trials],
    )
