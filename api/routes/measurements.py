"""``/v1/measurements``: what really happened, beside what was predicted."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import uuid4

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from api.auth import Principal, Reader, Writer
from api.conditional import FOR_EVER, body_of, conditional
from api.idempotency import IdempotencyKey, Once, replayed
from api.paging import cursor_of, place_of
from api.problems import ProblemRaised, not_found
from api.routes.common import PageQuery, Served, now, problems
from api.schemas.answers import Measurement, MeasurementList
from api.schemas.requests import MeasurementBody
from api.schemas.text import Id, Name
from db import records

router = APIRouter(prefix="/v1/measurements", tags=["measurements"])

_NEWEST_FIRST = "-created_at"


class MeasurementsQuery(PageQuery):
    """Which measurements."""

    plan_id: Id | None = None
    scenario_id: Id | None = None
    job_id: Name | None = None
    status: Literal["ok", "out_of_memory", "failed"] | None = None


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
    record = _record_of(body, principal)
    with once.or_forgotten(), state.store.writing() as repos:
        plan = repos.plans.get(body.plan_id)
        if plan is None:
            detail = "there is no such plan; POST /v1/predictions stores one"
            raise ProblemRaised(
                422, f"plan_id: {detail}", slug="unknown-plan", errors=[{"pointer": "/plan_id", "detail": detail}]
            )
        repos.measurements.add(record)
        headers = {"Location": f"/v1/measurements/{record.id}"}
        response = Response(body_of(_beside(record, plan)), 201, headers, "application/json")
        once.complete(repos, response)
    return response


def _record_of(body: MeasurementBody, principal: Principal) -> records.Measurement:
    moment = now()
    return records.Measurement(
        id=uuid4().hex,
        plan_id=body.plan_id,
        status=body.status,
        step_time_s=body.step_time_s,
        tokens_per_s_per_device=body.tokens_per_s_per_device,
        peak_allocated_bytes=body.peak_allocated_bytes,
        peak_reserved_bytes=body.peak_reserved_bytes,
        steps=body.steps,
        job_id=body.job_id,
        environment=body.environment,
        note=body.note,
        log_tail=body.log_tail,
        created_by=principal.id,
        measured_at=body.measured_at or moment,
        created_at=moment,
    )


@router.get("", response_model=MeasurementList, responses=problems(304), summary="List measurements, newest first")
def list_measurements(
    request: Request, state: Served, principal: Reader, query: Annotated[MeasurementsQuery, Query()]
) -> Response:
    """Filtered by plan, scenario, job and status."""
    place = place_of(query.cursor, _NEWEST_FIRST, by_time=True)
    with state.store.reading() as repos:
        page = repos.measurements.list(
            plan_id=query.plan_id,
            scenario_id=query.scenario_id,
            job_id=query.job_id,
            status=query.status,
            after=place,
            limit=query.limit,
        )
        plans = {plan.id: plan for plan in repos.plans.get_many([item.plan_id for item in page.items])}
    items = [_beside(item, plans[item.plan_id]) for item in page.items]
    return conditional(request, body_of(MeasurementList(items=items, next=cursor_of(page.next, _NEWEST_FIRST))))


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
    return conditional(request, body_of(_beside(found, plan)), cache=FOR_EVER)


def _beside(measured: records.Measurement, plan: records.Plan) -> Measurement:
    """A measurement with its plan's prediction; a throughput alone is turned into the step time that it means."""
    prediction = plan.prediction
    predicted = float(prediction["step_time_s"])
    step = measured.step_time_s
    if step is None and measured.tokens_per_s_per_device is not None:
        step = predicted * float(prediction["tokens_per_s_per_device"]) / measured.tokens_per_s_per_device
    low, high = prediction["step_time_interval_s"]
    own = ("created_by", "study_id", "trial_number")
    fields = {name: getattr(measured, name) for name in records.Measurement.__dataclass_fields__ if name not in own}
    return Measurement(
        **fields,
        predicted_step_time_s=predicted,
        measured_over_predicted=None if step is None else step / predicted,
        inside_interval=None if step is None else low <= step <= high,
    )
