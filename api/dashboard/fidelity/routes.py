"""The page of fidelity. What takes seconds is worked out in the background: the page answers at once, then again."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from functools import lru_cache
from threading import BoundedSemaphore
from time import monotonic
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import numpy as np
from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict

from api.auth import Reader
from api.dashboard.fidelity import calibrations, figures, own, pictures
from api.dashboard.fidelity.quantities import Of, Quantity, quantity_of
from api.dashboard.fidelity.residuals import residuals_of
from api.dashboard.fidelity.runs import Chosen, View, Work, view_of
from api.dashboard.fidelity.working import Workings
from api.dashboard.rendering import checked, macro, page, twin, wants_json
from api.preferences import wait_of
from api.problems import unusable
from api.routes.catalog import all_calibrations
from api.routes.common import Served
from api.schemas.text import Name
from costmodel.calibration.calibration import load_calibration
from costmodel.fidelity.scores import Fidelity
from costmodel.fingerprint import calibration_id, cost_model_version
from db import records

Json = dict[str, Any]

router = APIRouter(include_in_schema=False)

_WORST_LISTED = 15
_LOOK_AGAIN_S = 2
# Each takes a thread of those that answer requests.
_MOST_WAITERS = 8
_WAITERS = BoundedSemaphore(_MOST_WAITERS)


class FidelityQuery(BaseModel):
    """What is shown: which calibration, beside which, and on which runs."""

    model_config = ConfigDict(extra="forbid")

    calibration: Name | None = None
    against: Name | None = None
    accelerator: Name | None = None
    framework: Name | None = None
    source: Name | None = None
    of: Of = "time"
    colour: Literal["framework", "accelerator"] = "framework"

    @property
    def chosen(self) -> Chosen:
        """Which runs."""
        return Chosen(accelerator=self.accelerator or "", framework=self.framework or "", source=self.source or "")


@router.get("/fidelity.json")
@router.get("/fidelity")
def fidelity_page(
    request: Request, state: Served, principal: Reader, prefer: Annotated[list[str] | None, Header()] = None
) -> Response:
    """Predicted against measured.

    The JSON answers 202 with ``Retry-After`` while it is worked out; ``Prefer: wait=20`` waits so many seconds for it.
    """
    query = checked(FidelityQuery, request)
    known = all_calibrations(state)
    current = calibration_id(load_calibration())
    first = _named(known, query.calibration, "calibration") if query.calibration else _of_id(known, current)
    second = _named(known, query.against, "against") if query.against else None
    works = [_ask(request, record) for record in (first, second) if record is not None]
    if wants_json(request):
        wait = wait_of(prefer or (), state.settings.longest_wait_s) or 0.0
        return twin(_json(query, first, second, _all_done(works, wait)))
    views = [None if work is None else view_of(work, query.chosen) for work in (_done(work, 0.0) for work in works)]
    ready = all(view is not None for view in views)
    with state.store.reading() as repos:
        measured = own.own_of(repos)
    listed = calibrations.listed(known, current)
    asked = f"?{request.url.query}" if request.url.query else ""
    shown: Json = {
        "query": query,
        "known": listed,
        "first": first,
        "second": second,
        "titles": {one.id: one.title for one in listed},
        "ready": ready,
        "own": measured,
        "parameters": calibrations.provenance(calibrations.calibration_of(first)) if query.calibration else [],
        "cost_model": cost_model_version(),
        "look_again_s": _LOOK_AGAIN_S,
        "address": f"/fidelity{asked}",
        "twin": f"/fidelity.json{asked}",
        "differences": None,
        "same": 0,
        "figures": None,
        "scatter": None,
    }
    if second is not None:
        shown["differences"], shown["same"] = _differences(first, second)
    if ready:
        shown |= _figures(query, [view for view in views if view is not None], first, second)
    return page("fidelity.html", **shown)


def _differences(first: records.Calibration, second: records.Calibration) -> tuple[list[calibrations.Difference], int]:
    return calibrations.differences(calibrations.calibration_of(first), calibrations.calibration_of(second))


def _figures(
    query: FidelityQuery, views: list[View], first: records.Calibration, second: records.Calibration | None
) -> Json:
    view = views[0]
    judged = view.judged
    predictors: list[tuple[str, Fidelity]] = [(first.name, judged.figures)]
    if second is not None:
        predictors.append((_apart(second, first), views[1].judged.figures))
    predictors += [(title, judged.baseline_figures[name]) for name, title in figures.BASELINES.items()]
    shown = quantity_of(view, query.of)
    return {
        "figures": figures.overview([found for _, found in predictors]),
        "predictors": [name for name, _ in predictors],
        "offered": view.work.offered,
        "runs": len(view.rows),
        "judged": judged.observed.judged,
        "shown": shown,
        "both": len(shown.rows),
        "drawn": len(pictures.drawn_of(shown)),
        "in_sample": calibrations.calibration_of(first).fitted_to_carried_runs,
        "scatter": _scatter(view, shown, query.colour),
        "residuals": residuals_of(view, shown),
        "study_columns": figures.STUDY_COLUMNS,
        "studies": [(study, _link(query, study.name)) for study in figures.studies(judged)],
        "cells": judged.figures.per_cell,
        "worst": [_worst(view, shown, row) for row in pictures.farthest_off(shown, _WORST_LISTED)],
        "share": figures.share,
        "decimal": figures.decimal,
    }


# Of all that the page shows this takes longest to write, and it changes with nothing else.
@lru_cache(maxsize=16)
def _scatter(view: View, shown: Quantity, colour: str) -> str | None:
    """The chart as HTML."""
    chart = pictures.scatter(view, shown, colour)
    return None if chart is None else macro("chart.html", "draw")(chart)


def _json(
    query: FidelityQuery, first: records.Calibration, second: records.Calibration | None, works: list[Work | None]
) -> Response:
    """200 with all of it, or 202 while it is worked out."""
    head: Json = {
        "calibration": _told(first),
        "against": None if second is None else _told(second),
        "cost_model": cost_model_version(),
        "filters": query.model_dump(include={"accelerator", "framework", "source", "of"}),
    }
    if second is not None:
        found, same = _differences(first, second)
        head |= {"differences": [one.as_dict() for one in found], "same_parameters": same}
    views = [view_of(work, query.chosen) for work in works if work is not None]
    if len(views) < len(works):
        return JSONResponse({"state": "working", **head}, 202, {"Retry-After": str(_LOOK_AGAIN_S)})
    view = views[0]
    judged, shown = view.judged, quantity_of(view, query.of)
    return JSONResponse(
        {
            "state": "done",
            **head,
            "in_sample": calibrations.calibration_of(first).fitted_to_carried_runs,
            "runs": len(view.rows),
            "judged": judged.observed.judged,
            "planner": judged.figures.as_dict(),
            **({"planner_against": views[1].judged.figures.as_dict()} if second is not None else {}),
            "baselines": {name: found.as_dict() for name, found in judged.baseline_figures.items()},
            "residuals": [found.as_dict() for found in residuals_of(view, shown)],
            "points": _points(view, shown),
        },
        headers={"Cache-Control": "private, no-cache"},
    )


def _points(view: View, shown: Quantity) -> list[Json]:
    """Every run with both values."""
    accelerators, frameworks = view.kinds("accelerator"), view.kinds("framework")
    measured, predicted, interval = shown.fields
    return [
        {
            "id": view.runs[row].id,
            "study": str(view.judged.observed.studies[row]),
            "accelerator": accelerators[row],
            "framework": frameworks[row],
            measured: float(shown.measured[row]),
            predicted: float(shown.predicted[row]),
            interval: [_known(shown.low[row]), _known(shown.high[row])],
        }
        for row in shown.rows
    ]


def _worst(view: View, shown: Quantity, row: int) -> Json:
    return {
        "run": view.runs[row],
        "study": str(view.judged.observed.studies[row]),
        "measured": shown.text(shown.measured[row]),
        "predicted": shown.text(shown.predicted[row]),
        "ratio": float(shown.ratio[row]),
        "inside": bool(shown.inside[row]),
    }


def _link(query: FidelityQuery, study: str) -> str:
    """The same page with the runs of one study."""
    kept = query.model_dump(exclude_none=True, exclude_defaults=True)
    return f"/fidelity?{urlencode({**kept, 'source': study})}"


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _ask(request: Request, record: records.Calibration) -> Future[Work]:
    workings: Workings[Work] = request.app.state.fidelity
    return workings.ask(record.id, lambda: _worked_out(record))


def _worked_out(record: records.Calibration) -> Work:
    """With all that the first reader would wait for."""
    found = Work.of(calibrations.calibration_of(record))
    view = view_of(found, Chosen())
    residuals_of(view, quantity_of(view, "time"))
    return found


def _all_done(works: list[Future[Work]], seconds: float) -> list[Work | None]:
    """Those that are there by then; at once, where enough others wait already."""
    if not _WAITERS.acquire(blocking=False):
        return [_done(work, 0.0) for work in works]
    try:
        until = monotonic() + seconds
        return [_done(work, max(until - monotonic(), 0.0)) for work in works]
    finally:
        _WAITERS.release()


def _done(work: Future[Work], seconds: float) -> Work | None:
    """The result, if it is there by then."""
    try:
        return work.result(seconds)
    except NotYet:
        return None


def _of_id(known: list[records.Calibration], id: str) -> records.Calibration:
    return next(record for record in known if record.id == id)


def _named(known: list[records.Calibration], name: str, field: str) -> records.Calibration:
    """By name, the one of the catalog first, or by id.

    Raises:
        ProblemRaised: there is none.
    """
    found = next((record for record in known if name in (record.name, record.id)), None)
    if found is None:
        names = ", ".join(sorted({record.name for record in known}))
        raise unusable(field, f"there is no calibration {name[:80]!r}; there are {names}")
    return found


def _apart(second: records.Calibration, first: records.Calibration) -> str:
    return second.name if second.name != first.name else f"{second.name} ({second.id[:8]})"


def _told(record: records.Calibration) -> Json:
    return {name: getattr(record, name) for name in ("id", "name", "retrieved", "source")}
