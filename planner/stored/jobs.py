"""Stored plans as jobs to launch."""

from __future__ import annotations

from typing import Any

from costmodel.spec.plan import Plan
from db.repositories import Repositories
from planner.check.complete import Completion
from planner.export.job import Job
from planner.launching import legal_job
from planner.stored.records import scenario_of_plan


def stored_job(repos: Repositories, plan_id: str, **more: Any) -> Job | None:
    """The job of a stored plan; None where there is no such plan."""
    found = repos.plans.get(plan_id)
    if found is None:
        return None
    scenario, calibration = repos.scenarios.get(found.scenario_id), repos.calibrations.get(found.calibration_id)
    assert scenario is not None, "foreign keys hold"
    assert calibration is not None, "foreign keys hold"
    completion = Completion(plan=Plan.model_validate(found.plan), derived=(), has_layers=True, normalised=())
    return legal_job(scenario_of_plan(scenario, calibration, found.plan), completion, plan_id=plan_id, **more)
