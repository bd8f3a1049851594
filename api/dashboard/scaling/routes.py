"""``/scaling``: the stored answers to one question at many device counts. Looking never searches; a button does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response

from api.auth import Principal, Reader, Writer, may_write
from api.dashboard.rendering import page, twin, wants_json
from api.dashboard.scaling.pictures import pictures_of
from api.dashboard.scaling.points import LIVE, columns_of, is_missing, missing_in, points_of, refusal_of, rows_of
from api.dashboard.scaling.question import Curve, curve_of, first_form, question_in_words, scaling_fields
from api.dashboard.searches.form import Form
from api.routes.common import Served
from api.routes.searches import ask_search
from planner.service import Busy

router = APIRouter(include_in_schema=False)


@router.get("/scaling.json")
@router.get("/scaling")
def scaling_page(request: Request, state: Served, principal: Reader) -> Response:
    """The form and, once it is filled in, the curve as far as it is answered."""
    typed = dict(request.query_params)
    if not typed:
        # Nothing was asked, so there is no curve.
        nothing = JSONResponse({"question": None, "points": []})
        return twin(nothing) if wants_json(request) else _page(principal, first_form())
    curve, form = _read(typed)
    points = [] if curve is None else points_of(state, curve)
    if curve is not None and (refusal := refusal_of(points)):
        form = replace(form, errors={refusal[0]: (refusal[1],)})
    if curve is None or form.errors:
        if wants_json(request):
            raise form.refusal("query")
        return _page(principal, form, status=422)
    if wants_json(request):
        question = curve.body.model_dump(mode="json", exclude={"devices"}) | {"devices": list(curve.counts)}
        return twin(JSONResponse({"question": question, "points": points}))
    return _page(principal, form, points=points, address=_address(typed))


@router.post("/scaling")
def ask_missing(request: Request, state: Served, principal: Writer) -> Response:
    """Ask for the counts that nobody asked for; each is a search like any other.

    As many as may wait: where the queue is full after some, the page says which are left.
    """
    typed = dict(request.query_params)
    curve, form = _read(typed)
    if curve is None:
        raise form.refusal("query")
    for asked, body in enumerate(missing_in(points_of(state, curve), curve)):
        try:
            ask_search(body, state, principal)
        except Busy:
            if not asked:
                raise
            break
    return RedirectResponse(_address(typed), 303)


def _read(typed: dict[str, str]) -> tuple[Curve | None, Form]:
    known = {field.name for field in scaling_fields()}
    for name in typed:
        if name not in known:
            problem = {"loc": ("query", name), "msg": "there is no such parameter", "type": "value_error"}
            raise RequestValidationError([problem])
    return curve_of(typed)


def _address(typed: dict[str, str]) -> str:
    """What is left empty is left out, so that the address is as short as it can be."""
    return f"/scaling?{urlencode({name: text for name, text in typed.items() if text.strip()})}"


def _page(
    principal: Principal,
    form: Form,
    *,
    status: int = 200,
    points: list[dict[str, Any]] | None = None,
    address: str = "",
) -> Response:
    points = points or []
    return page(
        "scaling.html",
        status=status,
        fields=scaling_fields(),
        form=form,
        address=address,
        may_ask=may_write(principal),
        question=question_in_words(scaling_fields(), form),
        columns=columns_of(points),
        rows=rows_of(points),
        answered=sum(point["search_id"] is not None and point["status"] not in LIVE for point in points),
        waiting=sum(point["status"] in LIVE for point in points),
        missing=sum(map(is_missing, points)),
        pictures=pictures_of(points),
    )
