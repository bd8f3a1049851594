"""``/v1/plans``: stored plans, one by one, in sorted and filtered lists, and side by side."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Reader
from api.comparison import compare
from api.conditional import FOR_EVER, body_of, conditional
from api.paging import cursor_of, place_of
from api.problems import ProblemRaised, not_found
from api.routes.common import PageQuery, PlanId, Served, problems
from api.schemas.answers import Comparison, ListedPlan, PlanAxes, PlanFigures, PlanList, StoredPlan
from api.schemas.text import Id, Name
from api.state import Kind
from db import records

router = APIRouter(prefix="/v1/plans", tags=["plans"])

Size = Annotated[int, Field(ge=0, le=2**31 - 1)]
_AXES = tuple(PlanAxes.model_fields)


class PlansQuery(PageQuery):
    """Which plans, and in which order. Every axis of a plan can be asked for by its name."""

    sort: Annotated[
        Literal[
            "step_time_s",
            "-step_time_s",
            "tokens_per_s_per_device",
            "-tokens_per_s_per_device",
            "mfu",
            "-mfu",
            "peak_bytes",
            "-peak_bytes",
            "created_at",
            "-created_at",
        ],
        Field(description="`-` in front: largest first."),
    ] = "-created_at"
    scenario_id: Id | None = None
    search_id: Id | None = None
    calibration_id: Id | None = None
    model: Name | None = None
    cluster: Name | None = None
    accelerator: Name | None = None
    framework: Name | None = None
    precision: Name | None = None
    devices: Annotated[int, Field(ge=1, le=2**53)] | None = None
    max_peak_bytes: Annotated[int, Field(ge=0, le=2**53)] | None = None
    tp: Size | None = None
    pp: Size | None = None
    vpp: Size | None = None
    cp: Size | None = None
    cp_comm_type: Name | None = None
    ep: Size | None = None
    etp: Size | None = None
    dp: Size | None = None
    dp_replicate: Size | None = None
    dp_shard: Size | None = None
    zero_stage: Size | None = None
    micro_batch_size: Size | None = None
    num_microbatches: Size | None = None
    devices_used: Size | None = None
    schedule: Name | None = None
    recompute: Name | None = None
    offload: Name | None = None


class CompareQuery(BaseModel):
    """Which plans to compare."""

    model_config = ConfigDict(extra="forbid")

    plan: Annotated[
        list[Id],
        Field(
            min_length=2,
            max_length=6,
            description="Two to six ids of plans, each once: `?plan=..&plan=..`.",
            json_schema_extra={"uniqueItems": True},
        ),
    ]


@router.get("", response_model=PlanList, responses=problems(304), summary="List stored plans")
def list_plans(request: Request, state: Served, principal: Reader, query: Annotated[PlansQuery, Query()]) -> Response:
    """Filtered by scenario, hardware and axes, sorted by a figure, page by page."""
    by_time = query.sort.endswith("created_at")
    place = place_of(query.cursor, query.sort, by_time=by_time)
    axes = {axis: getattr(query, axis) for axis in _AXES if getattr(query, axis) is not None}
    chosen = records.PlanFilter(
        scenario_id=query.scenario_id,
        search_id=query.search_id,
        calibration_id=query.calibration_id,
        model=query.model,
        cluster=query.cluster,
        accelerator=query.accelerator,
        framework=query.framework,
        precision=query.precision,
        devices=query.devices,
        max_peak_bytes=query.max_peak_bytes,
        axes=axes,
    )
    with state.store.reading() as repos:
        page = repos.plans.list(chosen, query.sort, place, query.limit)
    items = [_listed(plan) for plan in page.items]
    return conditional(request, body_of(PlanList(items=items, next=cursor_of(page.next, query.sort))))


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
    return conditional(request, body_of(compare([stored(plan) for plan in found])), cache=FOR_EVER)


@router.get("/{plan_id}", response_model=StoredPlan, responses=problems(304, 404), summary="A plan")
def get_plan(request: Request, plan_id: PlanId, state: Served, principal: Reader) -> Response:
    """With its prediction; the object under ``plan`` is what ``planner check --plan`` reads."""
    body = state.bodies.get(Kind.PLAN, plan_id)
    if body is None:
        with state.store.reading() as repos:
            found = repos.plans.get(plan_id)
        if found is None:
            raise not_found("plan", plan_id)
        body = body_of(stored(found))
        state.bodies.put(Kind.PLAN, plan_id, body)
    return conditional(request, body, cache=FOR_EVER)


def stored(plan: records.Plan) -> StoredPlan:
    """A plan of the store on the wire."""
    return StoredPlan.model_validate(
        {
            "id": plan.id,
            "scenario_id": plan.scenario_id,
            "calibration_id": plan.calibration_id,
            "cost_model": plan.cost_model_version,
            "created_at": plan.created_at,
            "plan": plan.plan,
            "prediction": plan.prediction,
        }
    )


def _listed(plan: records.ListedPlan) -> ListedPlan:
    return ListedPlan(
        id=plan.id,
        scenario_id=plan.scenario_id,
        calibration_id=plan.calibration_id,
        cost_model=plan.cost_model_version,
        model=plan.model,
        cluster=plan.cluster,
        accelerator=plan.accelerator,
        devices=plan.devices,
        global_batch_size=plan.global_batch_size,
        seq_len=plan.seq_len,
        precision=plan.precision,
        framework=plan.framework,
        axes=PlanAxes(**plan.axes),
        figures=PlanFigures(**plan.figures),
        created_at=plan.created_at,
    )
