"""Opens studies, anew and again."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

from costmodel.errors import InvalidInput
from db import records
from db.repositories import Repositories
from db.store import Store
from planner.profiling.probe.can import as_run
from planner.search.request import SearchRequest
from planner.stored.questions import question_of, request_again
from planner.stored.records import calibration_record, scenario_of_records, scenario_record
from planner.studying.settings import StudySettings, check_name


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
        repos.studies.reopen(study.id, settings.trials, deadline_of(settings, now))
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
