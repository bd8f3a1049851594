"""``/v1/measurements``: what really happened, beside what was predicted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from api.auth import KeyFirst, Reader, Writer
from api.conditional import FOR_EVER, body_of, conditional
from api.idempotency import IdempotencyKey, Once, replayed
from api.paging import NEWEST_FIRST, cursor_of, place_of
from api.problems import ProblemRaised, not_found
from api.routes.common import Served, now, problems
from api.schemas.answers import Measurement, MeasurementList
from api.schemas.queries import MeasurementsQuery
from api.schemas.requests import MeasurementBody
from api.translation import listed_measurement, measurement, measurement_record

router = APIRouter(prefix="/v1/measurements", tags=["measurements"], route_class=KeyFirst)


@router.post(
    "",
    status_code=201,
    response_model=Measurement,
    responses={
        201: {
            "description": "Stored.",
            "links": {
                "self": {"operationId": "get_measurement", "parameters": {"measurement_id": "$response.body#/id"}},
                "plan": {"operationId": "get_plan", "parameters": {"plan_id": "$response.body#/plan_id"}},
            },
        },
        **problems(400, 409, 413, 415),
    },
    summary="Tell what a plan did when it ran",
)
def create_measurement(body: MeasurementBody, state: Served, principal: Writer, key: IdempotencyKey = None) -> Response:
    """Matched to its plan. Running out of memory and crashing are results too. Never changed afterwards."""
    once = Once(state.store, principal, key, "POST /v1/measurements", body)
    earlier = once.claim()
    if earlier is not None:
        return replayed(earlier)
    record = measurement_record(body, principal.id, now())
    with once.or_forgotten(), state.store.writing() as repos:
        plan = repos.plans.get(body.plan_id)
        if plan is None:
            detail = "there is no such plan; POST /v1/predictions stores one"
            raise ProblemRaised(
                422, f"plan_id: {detail}", slug="unknown-plan", errors=[{"pointer": "/plan_id", "detail": detail}]
            )
        repos.measurements.add(record)
        headers = {"Location": f"/v1/measurements/{record.id}"}
        response = Response(body_of(measurement(record, plan)), 201, headers, "application/json")
        once.complete(repos, response)
    return response


@router.get("", response_model=MeasurementList, responses=problems(304), summary="List measurements, newest first")
def list_measurements(
    request: Request, state: Served, principal: Reader, query: Annotated[MeasurementsQuery, Query()]
) -> Response:
    """Filtered by plan, scenario, job and status. Environments and logs are told one by one."""
    place = place_of(query.cursor, NEWEST_FIRST, query.filters, by_time=True)
    with state.store.reading() as repos:
        page = repos.measurements.list(**query.filters, after=place, limit=query.limit)
        plans = {plan.id: plan for plan in repos.plans.get_many([item.plan_id for item in page.items])}
    items = [listed_measurement(item, plans[item.plan_id]) for item in page.items]
    further = cursor_of(page.next, NEWEST_FIRST, query.filters)
    return conditional(request, body_of(MeasurementList(items=items, next=further)))


@router.get("/{measurement_id}", response_model=Measurement, responses=problems(304, 404), summary="A measurement")
def get_measurement(
    request: Request,
    measurement_id: Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")],
    state: Served,
    principal: Reader,
) -> Response:
    """With what was predicted of its plan."""
    with state.store.reading() as repos:
        found = repos.measurements.get(measurement_id)
        plan = repos.plans.get(found.plan_id) if found is not None else None
    if found is None or plan is None:
        raise not_found("measurement", measurement_id)
    return conditional(request, body_of(measurement(found, plan)), cache=FOR_EVER)
