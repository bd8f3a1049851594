"""``planner suggest`` and ``planner sweep`` without a server: from the store, else searched and stored.

A store that fails costs one warning, never the answer. Nothing here imports the store before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from costmodel.errors import InvalidInput, PlannerError
from planner.cli.exits import tell
from planner.cli.remarks import moment_in_words
from planner.question import Question
from planner.resolving import request_of
from planner.search.request import SearchRequest

if TYPE_CHECKING:
    from db.store import Store

Json = dict[str, Any]


def answer_here(question: Question, *, store: bool) -> Json:
    """The answer; with its id, state and moments when it is stored.

    Args:
        store: whether to look into the store, and to store what was searched.

    Raises:
        InvalidInput: a field is unusable.
    """
    request = request_of(question)
    opened = _opened() if store else None
    if opened is None:
        return _searched(request)
    with opened:
        answer, found = _through(opened, request)
    if found:
        when = moment_in_words(answer["finished_at"])
        tell(f"planner: answered from the store: searched on {when}, id {answer['id']}")
    return answer


def answers_here(questions: Iterable[Question], *, store: bool) -> Iterator[Json | InvalidInput]:
    """The answers one after the other, each stored when it is there; for one that can't be asked, what is wrong.

    Where nothing fits, the rules in the way are named, but no way out is looked for.
    """
    opened = _opened() if store else None
    try:
        for question in questions:
            try:
                request = request_of(question)
                answer = _searched(request, why=False) if opened is None else _through(opened, request, why=False)[0]
            except InvalidInput as error:
                yield error
            else:
                yield answer
    finally:
        if opened is not None:
            with suppress(PlannerError):
                opened.close()


def _opened() -> Store | None:
    """The store; None, and a warning, where it fails."""
    from db.store import Store

    try:
        return Store.open()
    except PlannerError as error:
        _warn(error)
        return None


def _through(opened: Store, request: SearchRequest, *, why: bool = True) -> tuple[Json, bool]:
    """The answer, from the store or stored from now on, and whether it was there.

    Args:
        why: whether to look for what is in the way where nothing fits; without, such an answer is not stored.
    """
    from planner.service import remember, remembered

    try:
        found = remembered(opened, request)
    except PlannerError as error:
        _warn(error)
        return _searched(request, why=why), False
    if found is not None:
        return found, True
    answer = _searched(request, why=why)
    if not why and answer["status"] == "infeasible":
        return answer, False
    try:
        return remember(opened, request, answer, now=datetime.now(UTC)), False
    except PlannerError as error:
        _warn(error)
        return answer, False


def _searched(request: SearchRequest, *, why: bool = True) -> Json:
    from planner.answering.whole_answer import whole_answer

    return whole_answer(request, why=why)


def _warn(error: PlannerError) -> None:
    tell(f"planner: warning: the answer is not stored: {error}")
