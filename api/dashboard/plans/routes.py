"""``/plans/{id}``: one plan. What takes long (the timeline) comes when it is asked for, by the URL or by htmx."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, ConfigDict

from api.auth import Principal, Reader
from api.dashboard.plans import figures, measured, memory, timeline, timeline_drawing, waterfall
from api.dashboard.plans.launching import file_of, launching
from api.dashboard.plans.placement import placed
from api.dashboard.plans.stored import Priced, StoredPlan, answer_of, priced, stored_plan
from api.dashboard.rendering import page, twin, wants_json
from api.problems import not_found
from api.routes import plans
from api.routes.common import Served
from api.schemas.text import Name
from api.state import State
from planner.export.trace.write import FILE as TRACE_FILE
from planner.export.trace.write import NAME as TRACE
from planner.options_in_words import options_in_words
from planner.wording import mesh_in_words

router = APIRouter(include_in_schema=False)

_MOST_SEARCHES = 3


class PlanPageQuery(BaseModel):
    """What of a plan is shown.

    Attributes:
        target: whose words it is launched in; by default those of its framework.
        version: of the target; by default that of the plan.
        timeline: a window of the step, ``25-37.5`` per cent.
    """

    model_config = ConfigDict(extra="forbid")

    target: Name | None = None
    version: Name | None = None
    timeline: str | None = None


class FileQuery(BaseModel):
    """Which version of the target a file is for."""

    model_config = ConfigDict(extra="forbid")

    version: Name | None = None


@dataclass(frozen=True, kw_only=True)
class Links:
    """Addresses of the page in other states."""

    plan_id: str
    query: PlanPageQuery

    @property
    def window(self) -> str | None:
        return self.query.timeline

    def to_target(self, target: str, version: str = "") -> str:
        return self._page(target=target, version=version)

    def to_window(self, window: str) -> str:
        return self._page(timeline=window)

    def to_file(self, target: str, name: str) -> str:
        """One file of a target, to download."""
        version = urlencode({"version": self.query.version}) if self.query.version else ""
        return f"/plans/{self.plan_id}/files/{target}/{quote(name)}" + (f"?{version}" if version else "")

    @property
    def trace(self) -> str:
        """The step as a trace, to download."""
        return f"/plans/{self.plan_id}/files/{TRACE}/{TRACE_FILE}"

    def part(self, window: str) -> str:
        """The timeline alone."""
        return f"/plans/{self.plan_id}/timeline?{self._state(timeline=window)}"

    def _page(self, **changed: str) -> str:
        return f"/plans/{self.plan_id}?{self._state(**changed)}"

    def _state(self, **changed: str) -> str:
        given = self.query.model_dump() | changed
        return urlencode({name: value for name, value in given.items() if value})


# The lower one is added first, and the other one's paths would match its pattern too.
@router.get("/plans/{plan_id}")
@router.get("/plans/{plan_id}.json")
def plan_page(
    request: Request, plan_id: str, state: Served, principal: Reader, query: Annotated[PlanPageQuery, Query()]
) -> Response:
    """A plan with its prediction; the twin is ``GET /v1/plans/{id}``."""
    if wants_json(request):
        return twin(plans.get_plan(request, plan_id, state, principal))
    window = _window(query.timeline)
    stored, found, more = _read(state, principal, plan_id)
    links = Links(plan_id=plan_id, query=query)
    prediction, plan = stored.prediction, stored.plan
    time, step = prediction["time"], prediction["step_time_s"]
    shown: dict[str, Any] = {
        "plan_id": plan_id,
        "headline": figures.headline(stored.about, plan),
        "mesh": mesh_in_words(plan),
        "facts": figures.facts(stored),
        "figures": figures.figures(prediction),
        "conventions": figures.conventions(prediction),
        "warnings": figures.warnings(prediction),
        "axes": figures.axes(plan, _options(stored, found)),
        "bars": waterfall.bars(time, step),
        "kinds": waterfall.by_kind(time, step),
        "step_time_s": step,
        "step_text": f"{step:.{waterfall.decimals(step)}f}",
        "memory_chart": memory.chart(prediction["memory"], plan["layers_per_stage"]),
        "memory_notes": memory.notes(prediction["memory"]),
        "memory_table": memory.table(prediction["memory"], plan["layers_per_stage"]),
        "of_today": figures.is_of_today(stored),
        "placed": [] if found is None else placed(found, time),
        "launching": None if found is None else launching(found, query.target, query.version),
        "links": links,
        "address": quote(f"{request.base_url}v1/measurements", safe=":/[]?=&%"),
        "with_key": state.settings.needs_keys,
        **_timeline(found, window),
        **more,
    }
    return page("plan.html", **shown)


@router.get("/plans/{plan_id}/timeline")
def timeline_part(
    request: Request, plan_id: str, state: Served, principal: Reader, query: Annotated[PlanPageQuery, Query()]
) -> Response:
    """The timeline alone, for htmx; without it, the page that has it."""
    window = _window(query.timeline) or timeline.Window()
    links = Links(plan_id=plan_id, query=query.model_copy(update={"timeline": window.text}))
    if "hx-request" not in request.headers:
        return RedirectResponse(f"{links.to_window(window.text)}#timeline", 303)
    stored, found, _ = _read(state, principal, plan_id)
    shown: dict[str, Any] = {
        "links": links,
    }
    response = page("timeline.html", **shown, **_timeline(found, window), of_today=figures.is_of_today(stored))
    response.headers["Vary"] = "Accept, HX-Request"
    return response


@router.get("/plans/{plan_id}/files/{target}/{name}")
def launch_file(
    plan_id: str, target: str, name: str, state: Served, principal: Reader, query: Annotated[FileQuery, Query()]
) -> Response:
    """A file of a target, to download."""
    _, found, _ = _read(state, principal, plan_id)
    file = None if found is None else file_of(found, target, name, query.version)
    if file is None:
        raise not_found("file", name)
    media_type = "application/json" if file.name.endswith(".json") else "text/plain"
    headers = {"Content-Disposition": f'attachment; filename="{file.name}"', "Cache-Control": "private, no-cache"}
    return Response(file.text, media_type=media_type, headers=headers)


def _read(state: State, principal: Principal, plan_id: str) -> tuple[StoredPlan, Priced | None, dict[str, Any]]:
    document = answer_of(state, principal, plan_id)
    with state.store.reading() as repos:
        stored = stored_plan(repos, document)
        return (
            stored,
            priced(repos, stored),
            {
                "places": repos.plans.places(plan_id, _MOST_SEARCHES),
                "runs": measured.runs_of(repos, plan_id, stored.prediction),
            },
        )


def _options(stored: StoredPlan, found: Priced | None) -> tuple[str, ...]:
    return () if found is None else tuple(options_in_words(stored.plan, found.scenario))


def _timeline(found: Priced | None, window: timeline.Window | None) -> dict[str, Any]:
    """The picture where a window is asked for; else its size, so that nothing moves when it comes."""
    shown: dict[str, Any] = {"priced": found is not None, "picture": None, "step": None, "height": 0}
    if found is None:
        return shown
    shown |= {"height": timeline_drawing.height_of(found.plan.pp), "kept": timeline_drawing.ABOVE}
    step = None if window is None else timeline.step_of(found)
    if window is None or step is None:
        return shown
    return shown | {"step": step, "picture": timeline_drawing.picture_of(step, window)}


def _window(text: str | None) -> timeline.Window | None:
    if text is None:
        return None
    window = timeline.window_of(text)
    if window is None:
        told = "a part of the step in per cent is expected, as 25-37.5, from the earlier to the later one"
        raise RequestValidationError([{"loc": ("query", "timeline"), "msg": told, "type": "value_error"}])
    return window
