"""A question's identity, and the question itself as the store keeps it: enough to ask it again, anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from costmodel.errors import PlannerError
from costmodel.fingerprint import calibration_id, cost_model_version, digest, digest_of_sources, scenario_id
from costmodel.scenario import Scenario
from db import records
from db.repositories import Repositories
from planner.search.allowed import allowed_options, words_of
from planner.search.answer import scenario_in_words
from planner.search.constraints import Condition, Constraints
from planner.search.request import SearchRequest
from planner.search.version import search_version
from planner.stored.records import scenario_of_records

Json = dict[str, Any]


class OtherVersion(PlannerError):
    """A search was asked of a planner whose cost model or search is not that of this process."""


_BEYOND: Mapping[str, Any] = {
    "min_devices": None,
    "max_step_time_s": None,
    "batch_tolerance": 0.0,
    "pareto": False,
    "shortlist": None,
}
"""What only newer questions ask, with what the others mean: these keep the key that they had before."""


def problem_key(request: SearchRequest) -> str:
    """What is asked, whoever answers it: neither the calibration nor the code is part of it.

    Nor are the seed and the deadline: an answer that is proven is the same for all of them. What is known of model,
    cluster, framework and recipes is: with other facts, a new field among them, it is another question.
    """
    constraints = request.constraints
    return digest(
        {
            "scenario": scenario_id(request.scenario),
            "pins": _conditions(constraints.pins),
            "forbids": _conditions(constraints.forbids),
            "objective": request.objective,
            # Where the fewest devices are wanted, no least share of them is asked for.
            "min_used": None if request.objective == "fewest_devices" or request.min_devices else request.min_used,
            "top": request.top,
            "price": request.price if request.objective == "cost" else None,
            # An answer without an explanation is none to a question that asks for one.
            **({"explain": True} if request.explain else {}),
            # Questions that allow nothing keep the key that they had before anything could be allowed.
            **({"allow": words_of(request.also)} if request.also else {}),
            **_asked_beyond(request),
        }
    )


def new_search(request: SearchRequest, created_by: str | None) -> records.NewSearch:
    """A question that is to be stored."""
    problem, calibration = problem_key(request), calibration_id(request.scenario.calibration)
    by = {"calibration": calibration, "cost_model": cost_model_version(), "search": search_version()}
    by |= {"explain": digest_of_sources("planner.explain")} if request.explain else {}
    by |= {"answering": digest_of_sources("planner.answering")} if _asked_beyond(request) else {}
    return records.NewSearch(
        id=uuid4().hex,
        key=digest({"problem": problem, **by}),
        problem_key=problem,
        scenario_id=scenario_id(request.scenario),
        calibration_id=calibration,
        cost_model_version=cost_model_version(),
        search_version=search_version(),
        question=question_of(request),
        objective=request.objective,
        top=request.top,
        max_seconds=request.max_seconds,
        seed=request.seed,
        created_by=created_by,
    )


def _asked_beyond(request: SearchRequest) -> Json:
    """What of ``_BEYOND`` is asked, and a price that is only shown."""
    asked = {name: getattr(request, name) for name, usual in _BEYOND.items() if getattr(request, name) != usual}
    priced = request.price_per_device_hour is not None and request.objective != "cost"
    return asked | ({"shown_price": request.price_per_device_hour} if priced else {})


def this_code() -> records.Code:
    """The code that answers in this process."""
    return records.Code(cost_model_version=cost_model_version(), search_version=search_version())


def stored_request(repos: Repositories, search: records.Search) -> SearchRequest:
    """The request that a stored search stands for.

    Raises:
        OtherVersion: other code than this was asked; its answer would be stored under the wrong version.
    """
    asked_of = records.Code(cost_model_version=search.cost_model_version, search_version=search.search_version)
    if asked_of != this_code():
        raise OtherVersion(f"the search was asked of {asked_of}, this process has {this_code()}; ask again")
    return request_as_stored(repos, search)


def request_as_stored(repos: Repositories, search: records.Search) -> SearchRequest:
    """The same for whoever asks it anew, of the code of this process."""
    scenario, calibration = repos.scenarios.get(search.scenario_id), repos.calibrations.get(search.calibration_id)
    assert scenario is not None, "foreign keys hold"
    assert calibration is not None, "foreign keys hold"
    return request_again(
        scenario_of_records(scenario, calibration),
        search.question,
        top=search.top,
        max_seconds=search.max_seconds,
        seed=search.seed,
    )


def request_again(asked_about: Scenario, asked: Json, *, top: int, max_seconds: float, seed: int) -> SearchRequest:
    """The request about a scenario whose stored question is ``asked``."""
    return SearchRequest(
        scenario=asked_about,
        constraints=Constraints.parse(asked["pins"], asked["forbids"]),
        objective=asked["objective"],
        min_used=asked["min_used"],
        top=top,
        max_seconds=max_seconds,
        seed=seed,
        price_per_device_hour=asked["price_per_device_hour"],
        also=allowed_options(asked_about.framework, asked.get("allow", ())),
        # Questions that were stored before explanations were told ask for none.
        explain=asked.get("explain", False),
        **{name: asked[name] for name in _BEYOND if name in asked},
    )


def question_of(request: SearchRequest) -> Json:
    constraints = request.constraints
    return {
        "scenario": {"id": scenario_id(request.scenario), **scenario_in_words(request.scenario)},
        "min_free_bytes": request.scenario.min_free_bytes,
        "objective": request.objective,
        "price_per_device_hour": request.price_per_device_hour,
        "pins": [condition.text for condition in constraints.pins],
        "forbids": [condition.text for condition in constraints.forbids],
        "allow": words_of(request.also),
        "min_used": request.min_used,
        "top": request.top,
        "max_seconds": request.max_seconds,
        "seed": request.seed,
        "explain": request.explain,
        **{name: getattr(request, name) for name in _BEYOND},
    }


def _conditions(conditions: tuple[Condition, ...]) -> list[Any]:
    """What conditions say, whatever order and spelling they were given in."""
    said = ([c.axis, sorted(c.values), sorted(str(span) for span in c.ranges)] for c in conditions)
    return sorted(said, key=repr)
