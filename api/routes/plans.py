"""``/v1/plans``: stored plans, one by one, in sorted and filtered lists, and side by side."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.auth import KeyFirst, Reader
from api.comparison import compare
from api.conditional import FOR_EVER, body_of, conditional
from api.paging import cursor_of, place_of
from api.problems import ProblemRaised, not_found
from api.routes.common import PlanId, Served, problems
from api.schemas.answers import Comparison, LaunchFiles, PlanAxes, PlanList, StoredPlan
from api.schemas.queries import CompareQuery, LaunchQuery, PlansQuery
from api.state import Kind
from api.translation import listed_plan, stored_plan
from db import records
from planner.launching import launch_of
from planner.stored.jobs import stored_job

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=KeyFirst)

_AXES = tuple(PlanAxes.model_fields)


@router.get("", response_model=PlanList, responses=problems(304), summary="List stored plans")
def list_plans(request: Request, state: Served, principal: Reader, query: Annotated[PlansQuery, Query()]) -> Response:
    """Filtered by scenario, hardware and axes, sorted by a figure, page by page."""
    by_time = query.sort.endswith("created_at")
    place = place_of(query.cursor, query.sort, query.filters, by_time=by_time)
    axes = {name: value for name, value in query.filters.items() if name in _AXES and value is not None}
    others = {name: value for name, value in query.filters.items() if name not in _AXES}
    chosen = records.PlanFilter(**others, axes=axes)
    with state.store.reading() as repos:
        page = repos.plans.list(chosen, query.sort, place, query.limit)
    items = [listed_plan(plan) for plan in page.items]
    further = cursor_of(page.next, query.sort, query.filters)
    return conditional(request, body_of(PlanList(items=items, next=further)))


@router.get("/compare", response_model=Comparison, responses=problems(304, 404), summary="Plans side by side")
def compare_plans(
    request: Request, state: Served, principal: Reader, query: Annotated[CompareQuery, Query()]
) -> Response:
    """Which axes differ, and how time and memory differ, term by term."""
    if len(set(query.plan)) < len(query.plan):
        raise ProblemRaised(
            422, "plan: every plan once", errors=[{"pointer": "plan", "detail": "name every plan once only"}]
        )
    with state.store.reading() as repos:
        found = repos.plans.get_many(query.plan)
    known = {plan.id for plan in found}
    for identifier in query.plan:
        if identifier not in known:
            raise not_found("plan", identifier)
    return conditional(request, body_of(compare([stored_plan(plan) for plan in found])), cache=FOR_EVER)


@router.get("/{plan_id}", response_model=StoredPlan, responses=problems(304, 404), summary="A plan")
def get_plan(request: Request, plan_id: PlanId, state: Served, principal: Reader) -> Response:
    """With its prediction; the object under ``plan`` is what ``planner check --plan`` reads."""
    body = state.bodies.get(Kind.PLAN, plan_id)
    if body is None:
        with state.store.reading() as repos:
            found = repos.plans.get(plan_id)
        if found is None:
            raise not_found("plan", plan_id)
        body = body_of(stored_plan(found))
        state.bodies.put(Kind.PLAN, plan_id, body)
    return conditional(request, body, cache=FOR_EVER)


@router.get(
    "/{plan_id}/launch",
    response_model=LaunchFiles,
    responses=problems(304, 404),
    summary="A plan in the words of a framework or a scheduler",
)
def launch_plan(
    request: Request, plan_id: PlanId, state: Served, principal: Reader, query: Annotated[LaunchQuery, Query()]
) -> Response:
    """The files that launch it; nothing is run here.

    What the target can't say of the plan is refused with the whole list, never left out: `refusals` of the problem.
    """
    with state.store.reading() as repos:
        job = stored_job(repos, plan_id)
    if job is None:
        raise not_found("plan", plan_id)
    written = launch_of(job, query.target, query.version)
    return conditional(request, body_of(LaunchFiles.model_validate(written.document())))
