"""What searches for others: a runner that takes stored questions and stores their answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from db import records
from db.store import Store
from planner.running.job import SearchJob
from planner.running.ledger import OUTDATED
from planner.running.runner import Runner
from planner.stored.questions import stored_request, this_code
from planner.stored.records import result_of


def search_runner(store: Store, slots: int) -> Runner:
    """A runner for the searches of a store; it does nothing until it is started.

    On a store that is ours alone, what is said to run was lost with the server before this one: nobody waits for its
    leases to run out, nor for code that no other server has.

    Args:
        slots: searches at once, each in a process of its own.
    """

    def work_of(search: records.Search) -> SearchJob:
        with store.reading() as repos:
            return SearchJob(request=stored_request(repos, search))

    def result_of_answer(search: records.Search, answer: dict[str, Any]) -> records.SearchResult:
        return result_of(answer, datetime.now(UTC))

    if store.serves_alone:
        now = datetime.now(UTC)
        with store.writing() as repos:
            repos.searches.end_leases(now)
            repos.searches.give_up_other_code(this_code(), now, OUTDATED, now)
    return Runner(store, slots=slots, work_of=work_of, result_of=result_of_answer, code=this_code())
