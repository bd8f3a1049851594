"""``/v1/predictions``: plans that somebody has already: legal or not, fitting or not, how long they take."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from api.auth import KeyFirst, Writer
from api.conditional import body_of
from api.idempotency import IdempotencyKey, Once, replayed
from api.problems import problem_of_input
from api.questions import check_question
from api.routes.common import Served, now, problems
from api.schemas.answers import PredictionResult, Predictions
from api.schemas.requests import PredictionItem, PredictionsBody
from api.translation import prediction_result
from costmodel.errors import InvalidInput, UnreadableFile
from db.store import Store
from planner.check.check import Checked, check_fields
from planner.service import remember_checked

router = APIRouter(prefix="/v1/predictions", tags=["predictions"], route_class=KeyFirst)


@router.post(
    "", response_model=Predictions, responses=problems(400, 409, 413, 415), summary="Price plans, up to 100 at once"
)
def predict(body: PredictionsBody, state: Served, principal: Writer, key: IdempotencyKey = None) -> Response:
    """Each item for itself: one that is unusable has a ``problem``, the others their verdicts.

    A plan that is legal and has a price is stored, and can be measured against by its ``plan_id``.
    """
    once = Once(state.store, principal, key, "POST /v1/predictions", body)
    earlier = once.claim()
    if earlier is not None:
        return replayed(earlier)
    with once.or_forgotten():
        response = Response(body_of(_results(state.store, body)), media_type="application/json")
        once.keep(response)
    return response


def _results(store: Store, body: PredictionsBody) -> Predictions:
    """Verdicts first, then all plans that have a price in one transaction."""
    judged = [_judged(item, f"/items/{place}") for place, item in enumerate(body.items)]
    priced = [found for found in judged if isinstance(found, Checked) and found.answer["prediction"] is not None]
    ids = iter(remember_checked(store, priced, now=now()))
    return Predictions(
        items=[
            found
            if isinstance(found, PredictionResult)
            else prediction_result(found.answer, next(ids) if found.answer["prediction"] is not None else None)
            for found in judged
        ]
    )


def _judged(item: PredictionItem, pointer: str) -> Checked | PredictionResult:
    try:
        return check_fields(check_question(item), item.plan)
    except UnreadableFile:
        raise
    except InvalidInput as error:
        problem = problem_of_input(error, item.model_dump(exclude_unset=True), pointer)
        return PredictionResult.model_validate({"status": None, "problem": problem})
