"""A stored plan with what it is of. The document is the API's answer, so that the page and its twin can't differ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from api.auth import Principal
from api.dashboard.rendering import document_of
from api.last_used import LastUsed
from api.routes import plans
from api.schemas.answers import PlanFields
from api.state import State
from costmodel.errors import InvalidInput
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from db import records
from db.repositories import Repositories
from planner.stored.records import scenario_of_plan

Json = dict[str, Any]

Work = tuple[str, int, int]
"""A scenario, and the batch and length of sequences of a plan: where they are the same, steps can be compared."""

_SCENARIOS: LastUsed[tuple[str, str, int, int], Scenario | None] = LastUsed(64)


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

    @cached_property
    def plan(self) -> Json:
        """Its fields; what an earlier version did not store has the value that it had then."""
        return PlanFields.model_validate(self.document["plan"]).model_dump(mode="json")

    @property
    def work(self) -> Work:
        """What a step of it does."""
        plan = self.plan
        return self.document["scenario_id"], plan["global_batch_size"], plan["seq_len"]

    @property
    def tokens(self) -> int:
        """Of a step."""
        return int(self.plan["global_batch_size"] * self.plan["seq_len"])

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
    return dict(document_of(plans.get_plan, plan_id, state, principal))


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
    plan, document = stored.plan, stored.document
    key = (document["scenario_id"], document["calibration_id"], plan["global_batch_size"], plan["seq_len"])

    def made() -> Scenario | None:
        calibration = repos.calibrations.get(document["calibration_id"])
        assert calibration is not None, "foreign keys hold"
        try:
            return scenario_of_plan(stored.about, calibration, plan)
        except (ValidationError, InvalidInput):
            return None

    scenario = _SCENARIOS.get(key, made)
    if scenario is None:
        return None
    try:
        return Priced(id=stored.id, scenario=scenario, plan=Plan.model_validate(plan))
    except ValidationError:
        return None
