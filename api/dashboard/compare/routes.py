"""``/compare?plan=..&plan=..``: two to six plans side by side; with fewer, where to find more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from api.auth import Principal, Reader
from api.dashboard.compare import pictures, tables
from api.dashboard.compare.sides import Scale, address, scale_of, scaled, sides_of, unlike
from api.dashboard.compare.why import Compared, why
from api.dashboard.plans.figures import facts, headline, is_of_today
from api.dashboard.plans.measured import Run, runs_of
from api.dashboard.plans.stored import StoredPlan, answer_of, priced, stored_plan
from api.dashboard.rendering import document_of, page, twin, wants_json
from api.problems import not_found, unusable
from api.routes import plans
from api.routes.common import Served
from api.schemas.queries import CompareQuery
from api.state import State
from db import records
from db.repositories import Repositories
from planner.wording import mesh_in_words

router = APIRouter(include_in_schema=False)

Json = dict[str, Any]

_ID = re.compile(r"[0-9a-f]{32}")
_SHORT = re.compile(r"[0-9a-f]{6,31}")
_MOST = 6
_OFFERED = 20
_RUNS = 3
_LONGEST_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A plan to compare with."""

    plan: records.ListedPlan
    mesh: str


@router.get("/compare")
@router.get("/compare.json")
def compare_page(request: Request, state: Served, principal: Reader) -> Response:
    """The plans of the query string, in its order; the twin is ``GET /v1/plans/compare``, or what to choose from."""
    given = request.query_params.getlist("plan")
    _check_names(request)
    ids = _ids(state, given)
    if wants_json(request):
        return twin(_as_json(request, state, principal, ids))
    if len(ids) > _MOST:
        return _compared(state, principal, ids[:_MOST], left_out=len(ids) - _MOST)
    if ids != given and any(given):
        return RedirectResponse(address(ids), 303)
    return _chosen(state, principal, ids) if len(ids) < 2 else _compared(state, principal, ids)


def _as_json(request: Request, state: State, principal: Principal, ids: list[str]) -> Response:
    if len(ids) > _MOST:
        raise unusable("plan", f"at most {_MOST} plans are compared at a time, and these are {len(ids)}")
    if len(ids) > 1:
        return plans.compare_plans(request, state, principal, CompareQuery(plan=ids))
    _, offers = _to_choose_from(state, principal, ids)
    offered = [{"id": offer.plan.id, "mesh": offer.mesh} for offer in offers]
    return JSONResponse({"plans": ids, "offers": offered})


def _check_names(request: Request) -> None:
    for name in request.query_params:
        if name != "plan":
            raise unusable(name, "there is no such parameter")


def _ids(state: State, given: Sequence[str]) -> list[str]:
    """Ids in what was given, each once: several in one field, addresses of plans, or how pages shorten ids.

    Raises:
        ProblemRaised: some of it is the id of no plan, or of several.
    """
    found: dict[str, None] = {}
    for text in given:
        for word in re.split(r"[\s,;]+", text.strip()):
            ids = _ID.findall(word.lower())
            if word and not ids:
                ids = [_whole(state, word[:_LONGEST_SHOWN])]
            found |= dict.fromkeys(ids)
    return list(found)


def _whole(state: State, short: str) -> str:
    if not _SHORT.fullmatch(short.lower()):
        raise not_found("plan", short)
    with state.store.reading() as repos:
        found = repos.plans.ids_from(short.lower(), 2)
    if not found:
        raise not_found("plan", short)
    if len(found) > 1:
        raise unusable("plan", f"ids of several plans begin with {short!r}: give more of it")
    return found[0]


def _compared(state: State, principal: Principal, ids: list[str], left_out: int = 0) -> Response:
    answer: Json = document_of(plans.compare_plans, state, principal, CompareQuery(plan=ids))
    with state.store.reading() as repos:
        stored = [stored_plan(repos, document) for document in answer["plans"]]
        of_model = [priced(repos, plan) if is_of_today(plan) else None for plan in stored]
        runs = [runs_of(repos, plan.id, plan.prediction, _RUNS) for plan in stored]
    scale = scale_of(stored)
    predictions = [scaled(plan.prediction, factor) for plan, factor in zip(stored, scale.factors, strict=True)]
    different, same = tables.choices([plan.plan for plan in stored])
    shown: Json = {
        "answer": answer,
        "sides": sides_of(stored, predictions),
        "facts": [("For", headline(stored[0].about, stored[0].plan)), *facts(stored[0])],
        "scale": scale,
        "unlike": unlike(stored),
        "pairs": why(
            [
                Compared(number=number, stored=plan, priced=of)
                for number, (plan, of) in enumerate(zip(stored, of_model, strict=True), start=1)
            ]
        ),
        "different": different,
        "same": same,
        "time_rows": tables.time_rows([of["time"] for of in predictions]),
        "memory_rows": tables.memory_rows(predictions),
        "time_chart": pictures.time_chart(predictions, scale),
        "memory_chart": pictures.memory_chart(predictions),
        "runs": runs,
        "other_way": _other_way(stored, runs, scale),
        "query": address(ids).partition("?")[2],
        "ids": ids,
        "room": len(ids) < _MOST,
        "left_out": left_out,
    }
    return page("compare.html", **shown)


def _other_way(stored: Sequence[StoredPlan], runs: Sequence[Sequence[Run]], scale: Scale) -> list[str]:
    """Pairs whose newest measured times are in another order than the predicted ones, said in words."""
    found: list[str] = []
    for one, other in combinations(range(len(stored)), 2):
        first, second = (next((float(run.step_s) for run in runs[place] if run.step_s), None) for place in (one, other))
        if first is None or second is None:
            continue
        predicted = [stored[place].prediction["step_time_s"] * scale.factors[place] for place in (one, other)]
        measured = [first * scale.factors[one], second * scale.factors[other]]
        if (predicted[0] - predicted[1]) * (measured[0] - measured[1]) < 0:
            fast, slow = (one, other) if measured[0] < measured[1] else (other, one)
            found.append(f"plan {fast + 1} was faster than plan {slow + 1}, which was predicted to be the faster one.")
    return found


def _chosen(state: State, principal: Principal, ids: list[str]) -> Response:
    """With one plan or none: plans to choose from, those of its own search first."""
    first, offers = _to_choose_from(state, principal, ids)
    shown: Json = {"first": first, "offers": offers, "now": datetime.now(UTC)}
    if first is not None:
        shown["side"] = sides_of([first], [first.prediction])[0]
    return page("compare_choose.html", **shown)


def _to_choose_from(state: State, principal: Principal, ids: list[str]) -> tuple[StoredPlan | None, list[Offer]]:
    """The plan that is there already, if any, and others."""
    with state.store.reading() as repos:
        first = stored_plan(repos, answer_of(state, principal, ids[0])) if ids else None
        return first, _offers(repos, first)


def _offers(repos: Repositories, first: StoredPlan | None) -> list[Offer]:
    """The newest plans, at most ``_OFFERED``."""
    found: dict[str, Offer] = {}
    filters = [records.PlanFilter()]
    if first is not None:
        places = repos.plans.places(first.id, 1)
        of_search = [records.PlanFilter(search_id=places[0].search_id)] if places else []
        filters = [*of_search, records.PlanFilter(scenario_id=first.document["scenario_id"]), *filters]
    for place, chosen in enumerate(filters):
        sort = "step_time_s" if first is not None and place < len(filters) - 1 else "-created_at"
        for plan in repos.plans.list(chosen, sort, None, _OFFERED).items:
            if first is None or plan.id != first.id:
                found.setdefault(plan.id, Offer(plan=plan, mesh=mesh_in_words(plan.axes)))
    return list(found.values())[:_OFFERED]
