"""The use cases that join search and store; nothing else does.

``ask`` gives a stored answer again, or lets a new question wait in the store for a process that searches
(``planner.running``). ``remembered`` and ``remember`` are for whoever searches by himself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from costmodel.errors import PlannerError
from costmodel.fingerprint import cost_model_version, plan_document_id
from db import records
from db.store import Store
from planner.check.check import Checked
from planner.search.request import SearchRequest
from planner.stored.answers import answer_in_words, stored_answer
from planner.stored.questions import new_search
from planner.stored.records import calibration_record, plan_record, result_of, scenario_record

Json = dict[str, Any]


class Busy(PlannerError):
    """So many searches wait that another one would not be answered in reasonable time."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Where a question stands.

    Attributes:
        stored: it had been asked before: the search is done, or somebody's is on its way.
    """

    search: records.Search
    stored: bool


def ask(
    store: Store,
    request: SearchRequest,
    *,
    now: datetime,
    created_by: str | None = None,
    most_waiting: int | None = None,
    anew: bool = False,
) -> Asked:
    """The answer that is stored, the search that is on its way, or a new one that waits to be run.

    Args:
        created_by: the API key's id, for the record.
        most_waiting: how many searches may wait; None for any number.
        anew: search again where a deadline cut the stored answer; a proven one would come out the same.

    Raises:
        Busy: as many as that wait already.
        StoreUnavailable: the store can't be reached.
    """
    new = new_search(request, created_by)
    with store.reading() as repos:
        found = repos.searches.answered(new.key, new.seed, new.max_seconds)
    if found is not None and not (anew and _was_cut(found)):
        return Asked(search=found, stored=True)
    try:
        with store.writing() as repos:
            repos.scenarios.put(scenario_record(request.scenario), now)
            repos.calibrations.put(calibration_record(request.scenario.calibration), now)
            search, is_new = repos.searches.add(new, now)
            if is_new:
                # A search for the same may have ended between our look and now.
                found = repos.searches.answered(new.key, new.seed, new.max_seconds)
                if found is not None and not (anew and _was_cut(found)):
                    raise _Answered(found)
                if most_waiting is not None and repos.searches.waiting() > most_waiting:
                    raise Busy(f"{most_waiting} searches wait already; ask again in a while")
    except _Answered as meanwhile:
        return Asked(search=meanwhile.search, stored=True)
    return Asked(search=search, stored=not is_new)


def _was_cut(search: records.Search) -> bool:
    return not search.proven_top_k and search.status != "infeasible"


class _Answered(Exception):
    """Undoes a transaction that turned out to be needless."""

    def __init__(self, search: records.Search) -> None:
        self.search = search


def remembered(store: Store, request: SearchRequest) -> Json | None:
    """The stored answer to a question; None when it was never answered under this calibration and code."""
    new = new_search(request, None)
    with store.reading() as repos:
        found = repos.searches.answered(new.key, new.seed, new.max_seconds)
        return None if found is None else stored_answer(repos, found)


def standing(store: Store, requests: Sequence[SearchRequest]) -> list[Json | None]:
    """How each question stands: the answer with its best plan alone, the search on its way, None where nobody asked.

    Args:
        requests: of one seed and one deadline.
    """
    asked = [new_search(request, None) for request in requests]
    if not asked:
        return []
    with store.reading() as repos:
        found = repos.searches.standing([new.key for new in asked], asked[0].seed, asked[0].max_seconds)
        best = repos.plans.best_of([search.id for search in found.values()])
    answers = {
        key: answer_in_words(search, [best[search.id]] if search.id in best else []) for key, search in found.items()
    }
    return [answers.get(new.key) for new in asked]


def remember(store: Store, request: SearchRequest, answer: Json, *, now: datetime) -> Json:
    """Store an answer that was found here; returns it as the store gives it from now on."""
    with store.writing() as repos:
        repos.scenarios.put(scenario_record(request.scenario), now)
        repos.calibrations.put(calibration_record(request.scenario.calibration), now)
        search = repos.searches.store_answer(new_search(request, None), result_of(answer, now), now)
        return stored_answer(repos, search)


def remember_checked(store: Store, checked: Sequence[Checked], *, now: datetime) -> list[str]:
    """Store plans that were judged and have a price, all or none; returns their ids."""
    version = cost_model_version()
    scenarios = [scenario_record(judged.scenario) for judged in checked]
    calibrations = [calibration_record(judged.scenario.calibration) for judged in checked]
    plans = [
        plan_record(
            plan_document_id(given.id, judged.answer["plan"], calibration.id, version),
            given.id,
            calibration.id,
            version,
            judged.answer["plan"],
            judged.answer["prediction"],
            now,
        )
        for judged, given, calibration in zip(checked, scenarios, calibrations, strict=True)
    ]
    with store.writing() as repos:
        repos.scenarios.put_many(scenarios, now)
        repos.calibrations.put_many(calibrations, now)
        repos.plans.put(plans)
    return [plan.id for plan in plans]
