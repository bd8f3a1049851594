"""Opens studies, and finds what they may run."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from costmodel.errors import InvalidInput
from costmodel.fingerprint import calibration_id, cost_model_version, plan_document_id, scenario_id
from costmodel.spec.plan import Plan
from db import records
from db.repositories import Repositories
from db.store import Store
from planner.export.job import Job
from planner.profiling.probe.can import as_run
from planner.profiling.runner import Runner
from planner.search.request import SearchRequest
from planner.stored.questions import question_of, request_again
from planner.stored.records import calibration_record, plan_record, scenario_of_records, scenario_record
from planner.studying.settings import StudySettings, check_name
from planner.tuning.candidates import Candidate, candidates_of

_REFUSED_SHOWN = 3


def open_study(
    store: Store,
    request: SearchRequest,
    settings: StudySettings,
    *,
    name: str,
    now: datetime,
    created_by: str | None = None,
) -> records.Study:
    """A new study of that name, which workers then prepare and run.

    What the probe is to run is predicted for as the probe runs it.

    Raises:
        InvalidInput: there is one of that name.
    """
    with store.writing() as repos:
        return put_study(repos, request, settings, name=name, now=now, created_by=created_by)


def put_study(
    repos: Repositories,
    request: SearchRequest,
    settings: StudySettings,
    *,
    name: str,
    now: datetime,
    created_by: str | None,
) -> records.Study:
    """``open_study`` as a part of a transaction.

    Raises:
        InvalidInput: there is one of that name.
    """
    if settings.runner == "local":
        request = replace(request, scenario=as_run(request.scenario))
    scenario, calibration = scenario_record(request.scenario), calibration_record(request.scenario.calibration)
    study = records.Study(
        id=uuid4().hex,
        name=check_name(name),
        scenario_id=scenario.id,
        search_id=None,
        created_by=created_by,
        created_at=now,
        state="preparing",
        settings={
            "trials": settings.stored(),
            "calibration": calibration.id,
            "question": question_of(request),
            "max_seconds": request.max_seconds,
            "seed": request.seed,
        },
        runner=settings.runner,
        most_trials=settings.trials,
        deadline=deadline_of(settings, now),
    )
    repos.scenarios.put(scenario, now)
    repos.calibrations.put(calibration, now)
    repos.studies.add(study)
    return study


def resume_study(store: Store, name: str, settings: StudySettings, now: datetime) -> records.Study:
    """The study of that name, open again under the budget of ``settings``.

    Raises:
        InvalidInput: there is none of that name.
    """
    with store.writing() as repos:
        study = repos.studies.named(name)
        if study is None:
            raise InvalidInput("study", name, "no study of that name is stored: leave out --resume for a new one")
        if study.state != "preparing" and not repos.studies.reopen(
            study.id, settings.trials, deadline_of(settings, now)
        ):
            raise InvalidInput("study", name, f"it failed before any trial: {study.ended_because}")
        found = repos.studies.get(study.id)
    assert found is not None
    return found


def deadline_of(settings: StudySettings, now: datetime) -> datetime | None:
    """When a study that is opened now has to be over."""
    return None if settings.max_minutes is None else now + timedelta(minutes=settings.max_minutes)


def settings_of(study: records.Study) -> StudySettings:
    """How a study's trials are run."""
    return StudySettings.of_stored(study.settings["trials"])


def request_of_study(repos: Repositories, study: records.Study) -> SearchRequest:
    """The request whose plans a study is about."""
    scenario = repos.scenarios.get(study.scenario_id)
    calibration = repos.calibrations.get(study.settings["calibration"])
    assert scenario is not None, "foreign keys hold"
    assert calibration is not None, "a study's calibration is stored with it"
    return request_again(
        scenario_of_records(scenario, calibration),
        study.settings["question"],
        top=1,
        max_seconds=study.settings["max_seconds"],
        seed=study.settings["seed"],
    )


def prepare(store: Store, study: records.Study, runner: Runner, now: datetime) -> bool:
    """Find the candidates of a study that is ours to prepare, and open it; False when it was somebody else's by then.

    Raises:
        InvalidInput: no plan fits, or the runner can run none of them.
    """
    with store.reading() as repos:
        request = request_of_study(repos, study)
    found = _runnable(request, candidates_of(request), runner)
    plans = [_plan_record(request, candidate, now) for candidate in found]
    with store.writing() as repos:
        repos.plans.put(plans)
        places = [
            records.StudyCandidate(study_id=study.id, place=place, plan_id=plan.id, origin=candidate.origin)
            for place, (plan, candidate) in enumerate(zip(plans, found, strict=True))
        ]
        return repos.studies.prepared(study, places)


def _runnable(request: SearchRequest, candidates: list[Candidate], runner: Runner) -> list[Candidate]:
    """Those that the runner can run.

    Raises:
        InvalidInput: it can run none; the message says why of the first ones.
    """
    kept: list[Candidate] = []
    refusals: dict[str, None] = {}
    for candidate in candidates:
        plan = Plan.model_validate(candidate.plan)
        try:
            runner.check(Job(scenario=request.scenario, plan=plan))
        except InvalidInput as error:
            refusals[str(error)] = None
        else:
            kept.append(candidate)
    if not kept:
        reasons = " / ".join(list(refusals)[:_REFUSED_SHOWN])
        raise InvalidInput("runner", runner.name, f"it can run none of {len(candidates)} plans: {reasons}")
    return kept


def _plan_record(request: SearchRequest, candidate: Candidate, now: datetime) -> records.Plan:
    scenario, calibration = scenario_id(request.scenario), calibration_id(request.scenario.calibration)
    version = cost_model_version()
    own: dict[str, Any] = candidate.plan
    id = plan_document_id(scenario, own, calibration, version)
    return plan_record(id, scenario, calibration, version, own, candidate.prediction, now)
