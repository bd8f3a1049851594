"""``planner suggest`` without a server: from the store when the question was answered before, else searched and stored.

A store that fails costs one warning, never the answer. Nothing here imports the store before it is needed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from costmodel.errors import PlannerError
from planner.cli.exits import tell
from planner.cli.remarks import moment_in_words
from planner.question import Question
from planner.resolving import request_of
from planner.search.request import SearchRequest

Json = dict[str, Any]


def answer_here(question: Question, *, store: bool) -> Json:
    """The answer; with its id, state and moments when it is stored.

    Args:
        store: whether to look into the store, and to store what was searched.

    Raises:
        InvalidInput: a field is unusable.
    """
    request = request_of(question)
    return _through_the_store(request) if store else _searched(request)


def _through_the_store(request: SearchRequest) -> Json:
    from db.store import Store
    from planner.service import remember, remembered

    try:
        opened = Store.open()
    except PlannerError as error:
        _warn(error)
        return _searched(request)
    with opened:
        try:
            found = remembered(opened, request)
        except PlannerError as error:
            _warn(error)
            return _searched(request)
        if found is not None:
            when = moment_in_words(found["finished_at"])
            tell(f"planner: answered from the store: searched on {when}, id {found['id']}")
            return found
        answer = _searched(request)
        try:
            return remember(opened, request, answer, now=datetime.now(UTC))
        except PlannerError as error:
            _warn(error)
            return answer


def _searched(request: SearchRequest) -> Json:
    from planner.explain.explanation import answered

    return answered(request)


def _warn(error: PlannerError) -> None:
    tell(f"planner: warning: the answer is not stored: {error}")
