"""Finds the candidates of a study, in one worker, while others wait for as long as that gives a sign."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from costmodel.errors import InvalidInput
from costmodel.fingerprint import calibration_id, cost_model_version, plan_document_id, scenario_id
from costmodel.spec.plan import Plan
from db import records
from db.errors import StoreUnavailable
from db.store import Store
from planner.export.job import Job
from planner.profiling.runner import Runner
from planner.search.request import SearchRequest
from planner.stored.records import plan_record
from planner.studying.keeping import Sign
from planner.studying.opening import request_of_study
from planner.tuning.candidates import Candidate, candidates_of

_REFUSED_SHOWN = 3
_MOST_ATTEMPTS = 3
_log = logging.getLogger("planner.studying")

Listener = Callable[[records.Study, str], None]


def prepare_in_turn(
    store: Store, study: records.Study, runner: Runner, *, owner: str, lease_s: float, heard: Listener
) -> None:
    """Find the candidates of a study unless another worker does, and open it; a study that can have none has failed.

    Raises:
        StoreUnavailable: another worker has to, once our lease has run out.
    """
    now = datetime.now(UTC)
    with store.writing() as repos:
        mine = repos.studies.claim_preparation(study.id, owner, now, now + timedelta(seconds=lease_s))
    if mine is None:
        return
    if mine.attempt > _MOST_ATTEMPTS:
        _fail(store, mine, f"{_MOST_ATTEMPTS} workers that looked for its candidates died", heard)
        return
    heard(mine, "looking for candidates")

    def renew(until: datetime) -> bool:
        with store.writing() as repos:
            return repos.studies.renew_preparation(mine, until)

    try:
        with Sign(renew, lease_s):
            said = prepare(store, mine, runner, datetime.now(UTC))
    except StoreUnavailable:
        raise
    except InvalidInput as error:
        _fail(store, mine, str(error), heard)
    except Exception as error:
        _log.exception("no candidates of %s were found", study.name)
        _fail(store, mine, f"looking for candidates failed: {error}", heard)
    else:
        if said is not None:
            heard(mine, said)


def _fail(store: Store, study: records.Study, because: str, heard: Listener) -> None:
    with store.writing() as repos:
        repos.studies.end(study.id, "failed", because, datetime.now(UTC))
    heard(study, f"failed: {because}")


def prepare(store: Store, study: records.Study, runner: Runner, now: datetime) -> str | None:
    """Find the candidates of a study that is ours to prepare, and open it.

    Returns:
        In words how many there are, and what the runner refuses; None when it was somebody else's by then.

    Raises:
        InvalidInput: no plan fits, or the runner can run none of them.
    """
    with store.reading() as repos:
        request = request_of_study(repos, study)
    found, refused = _runnable(request, candidates_of(request), runner)
    plans = [_plan_record(request, candidate, now) for candidate in found]
    with store.writing() as repos:
        repos.plans.put(plans)
        places = [
            records.StudyCandidate(study_id=study.id, place=place, plan_id=plan.id, origin=candidate.origin)
            for place, (plan, candidate) in enumerate(zip(plans, found, strict=True))
        ]
        opened = repos.studies.prepared(study, places)
    return _ready_in_words(len(found), refused) if opened else None


def _ready_in_words(count: int, refused: Counter[str]) -> str:
    said = f"ready, {count} {'candidate' if count == 1 else 'candidates'}"
    if not refused:
        return said
    reasons = " / ".join(f"{why} ({of})" for why, of in refused.most_common(_REFUSED_SHOWN))
    return f"{said}; {refused.total()} more can't be run here: {reasons}"


def _runnable(
    request: SearchRequest, candidates: list[Candidate], runner: Runner
) -> tuple[list[Candidate], Counter[str]]:
    """Those that the runner can run, and why not of the others, each reason with how many it stops.

    Raises:
        InvalidInput: it can run none; the message says why of the first ones.
    """
    kept: list[Candidate] = []
    refusals: Counter[str] = Counter()
    for candidate in candidates:
        plan = Plan.model_validate(candidate.plan)
        try:
            runner.check(Job(scenario=request.scenario, plan=plan))
        except InvalidInput as error:
            refusals[str(error)] += 1
        else:
            kept.append(candidate)
    if not kept:
        reasons = " / ".join(list(refusals)[:_REFUSED_SHOWN])
        raise InvalidInput("runner", runner.name, f"it can run none of {len(candidates)} plans: {reasons}")
    return kept, refusals


def _plan_record(request: SearchRequest, candidate: Candidate, now: datetime) -> records.Plan:
    scenario, calibration = scenario_id(request.scenario), calibration_id(request.scenario.calibration)
    version = cost_model_version()
    id = plan_document_id(scenario, candidate.plan, calibration, version)
    return plan_record(id, scenario, calibration, version, candidate.plan, candidate.prediction, now)
