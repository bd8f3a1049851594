"""A stored plan with what it is of. The document is the API's answer, so that the page and its twin can't differ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from pydantic import ValidationError

from api.auth import Principal
from api.dashboard.plans.kept import Kept
from api.routes import plans
from api.state import State
from costmodel.errors import InvalidInput
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from db import records
from db.repositories import Repositories
from planner.stored.records import scenario_of_records

Json = dict[str, Any]

_SCENARIOS: Kept[Scenario | None] = Kept(64)


@dataclass(frozen=True, kw_only=True)
class StoredPlan:
    """A plan of the store.

    Attributes:
        document: the API's answer: ids, ``plan`` and ``prediction``.
        about: what it was asked for: model, cluster and work, by name.
        calibration: the name of what it was priced under.
    """

    id: str
    document: Json
    about: records.Scenario
    calibration: str

    @property
    def plan(self) -> Json:
        return dict(self.document["plan"])

    @property
    def prediction(self) -> Json:
        return dict(self.document["prediction"])


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A plan that today's cost model can work with."""

    id: str
    scenario: Scenario
    plan: Plan


def answer_of(state: State, principal: Principal, plan_id: str) -> Json:
    """What ``GET /v1/plans/{id}`` answers.

    Raises:
        ProblemRaised: there is no such plan.
    """
    # Asked without conditions, it always has a body.
    body = plans.get_plan(Request({"type": "http", "headers": []}), plan_id, state, principal).body
    return dict(json.loads(bytes(body)))


def stored_plan(repos: Repositories, document: Json) -> StoredPlan:
    """A plan of an answer with what it is of."""
    about, calibration = (
        repos.scenarios.get(document["scenario_id"]),
        repos.calibrations.get(document["calibration_id"]),
    )
    assert about is not None, "foreign keys hold"
    assert calibration is not None, "foreign keys hold"
    return StoredPlan(id=document["id"], document=document, about=about, calibration=calibration.name)


def priced(repos: Repositories, stored: StoredPlan) -> Priced | None:
    """The plan for the cost model; None where an earlier version stored what this one can't read."""
    key = (stored.document["scenario_id"], stored.document["calibration_id"])

    def made() -> Scenario | None:
        calibration = repos.calibrations.get(key[1])
        assert calibration is not None, "foreign keys hold"
        try:
            return scenario_of_records(stored.about, calibration)
        except (ValidationError, InvalidInput):
            return None

    scenario = _SCENARIOS.get(key, made)
    if scenario is None:
        return None
    try:
        return Priced(id=stored.id, scenario=scenario, plan=Plan.model_validate(stored.plan))
    except ValidationError:
        return None
