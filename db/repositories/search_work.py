"""Work on searches: who does it, until when, and how it ends.

A runner owns a search for as long as it renews the lease. One whose lease ran out is anybody's; its former owner can
still try to finish it, but an answer only counts from the owner of the current attempt. Every change of state leaves an
event in the same transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, insert, not_, or_, select, text, update

from db.records import Code, Json, Search, SearchResult
from db.repositories.events import Events
from db.repositories.plans import Plans
from db.repositories.statements import values_of
from db.tables import LIVE, SearchPlanRow, SearchRow

_ALIVE = text(f"searches.{LIVE}")
"""In the words of the partial indexes, which are only used then."""


class SearchWork(ABC):
    """The half of ``Searches`` that runners use."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._events = Events(connection)

    @abstractmethod
    def get(self, id: str) -> Search | None:
        """The search of that id."""

    def claim(
        self, owner: str, now: datetime, lease_until: datetime, most_attempts: int, code: Code | None = None
    ) -> Search | None:
        """The oldest search that nobody works on, now its own; None when there is none.

        Args:
            most_attempts: a search that was given up by its owners this often is left alone.
            code: leave alone what was asked of other code; None takes any.
        """
        condition = _free(now, most_attempts)
        return self._claim(condition if code is None else and_(condition, _asked_of(code)), owner, now, lease_until)

    def claim_this(self, id: str, owner: str, now: datetime, lease_until: datetime) -> Search | None:
        """That search, now its own; None when it is finished, or somebody works on it."""
        return self._claim(and_(_free(now), SearchRow.id == id), owner, now, lease_until)

    def renew(self, owner: str, ids: Collection[str], lease_until: datetime) -> set[str]:
        """Keep searches.

        Returns:
            Those to be stopped: their end was asked for, or they are no longer the owner's.
        """
        if not ids:
            return set()
        statement = (
            update(SearchRow)
            .where(SearchRow.id.in_(ids), SearchRow.owner == owner, SearchRow.state == "running")
            .values(lease_until=lease_until)
            .returning(SearchRow.id, SearchRow.cancel_requested)
        )
        kept = {row.id for row in self._connection.execute(statement) if not row.cancel_requested}
        return set(ids) - kept

    def tell(self, id: str, owner: str, attempt: int, kind: str, data: Json, now: datetime) -> bool:
        """Add an event about how far it is; False, and nothing was written, as in ``finish``."""
        if not self._still_own(id, owner, attempt):
            return False
        self._events.append(id, kind, data, now)
        return True

    def finish(self, id: str, owner: str, attempt: int, result: SearchResult, now: datetime) -> bool:
        """Write an answer.

        Returns:
            False, and nothing was written, unless the search runs and is the owner's in this attempt.
        """
        if not self._still_own(id, owner, attempt):
            return False
        self._write_result(id, result, now)
        return True

    def fail(self, id: str, owner: str, attempt: int, problem: Json, now: datetime) -> bool:
        """Write why there is no answer; False as in ``finish``."""
        if not self._still_own(id, owner, attempt):
            return False
        self._end(id, "failed", {"problem": problem}, now, problem=problem)
        return True

    def mark_cancelled(self, id: str, owner: str, attempt: int, now: datetime) -> bool:
        """Write that it was stopped because somebody asked for that; False as in ``finish``.

        If somebody has asked the same question since, it waits for its next owner instead.
        """
        if not self._still_own(id, owner, attempt):
            return False
        wanted = select(SearchRow.id).where(SearchRow.id == id, SearchRow.cancel_requested.is_(False))
        if self._connection.execute(wanted).one_or_none() is None:
            self._end(id, "cancelled", {}, now)
        else:
            self._put_back(id, now)
        return True

    def request_cancel(self, id: str, now: datetime) -> Search | None:
        """Ask for the end of a search. One that nobody works on ends at once; a finished one stays as it is."""
        row = self._connection.execute(_state_of(id).with_for_update()).one_or_none()
        if row is None:
            return None
        if row.state == "queued" or (row.state == "running" and row.lease_until < now):
            self._end(id, "cancelled", {}, now)
        elif row.state == "running":
            self._connection.execute(update(SearchRow).where(SearchRow.id == id).values(cancel_requested=True))
        return self.get(id)

    def release(self, owner: str, now: datetime) -> int:
        """Put the owner's searches back into the queue, as it has to stop; those that nobody wants any more end.

        Returns:
            How many.
        """
        mine = and_(SearchRow.owner == owner, SearchRow.state == "running")
        unwanted = self._locked(and_(mine, SearchRow.cancel_requested.is_(True)))
        for id in unwanted:
            self._end(id, "cancelled", {}, now)
        wanted = self._locked(and_(mine, SearchRow.cancel_requested.is_(False)))
        for id in wanted:
            # Who puts a search back has not died of it: the attempt does not count.
            self._put_back(id, now, attempt=SearchRow.attempt - 1)
        return len(unwanted) + len(wanted)

    def give_up(self, now: datetime, most_attempts: int, problem: Json) -> int:
        """End searches whose owners died: failed after too many attempts, cancelled if that was asked for.

        Returns:
            How many.
        """
        lost = and_(SearchRow.state == "running", SearchRow.lease_until < now)
        unwanted = self._locked(and_(lost, SearchRow.cancel_requested.is_(True)))
        for id in unwanted:
            self._end(id, "cancelled", {}, now)
        hopeless = self._locked(and_(lost, SearchRow.cancel_requested.is_(False), SearchRow.attempt >= most_attempts))
        for id in hopeless:
            self._end(id, "failed", {"problem": problem}, now, problem=problem)
        return len(unwanted) + len(hopeless)

    def give_up_other_code(self, code: Code, asked_before: datetime, problem: Json, now: datetime) -> int:
        """Fail searches that nobody works on, were asked of other code, and have waited for it for long.

        Returns:
            How many.
        """
        outdated = self._locked(and_(_free(now), not_(_asked_of(code)), SearchRow.created_at < asked_before))
        for id in outdated:
            self._end(id, "failed", {"problem": problem}, now, problem=problem)
        return len(outdated)

    def end_leases(self, now: datetime) -> int:
        """Make all running searches anybody's: whoever held them is known to be gone.

        Returns:
            How many.
        """
        held = update(SearchRow).where(_ALIVE, SearchRow.state == "running", SearchRow.lease_until > now)
        return self._connection.execute(held.values(lease_until=now)).rowcount

    def waiting(self) -> int:
        """How many are queued."""
        query = select(func.count()).select_from(SearchRow).where(_ALIVE, SearchRow.state == "queued")
        return self._connection.execute(query).scalar_one()

    def _claim(self, condition: ColumnElement[bool], owner: str, now: datetime, lease_until: datetime) -> Search | None:
        oldest = (
            select(SearchRow.id)
            .where(_ALIVE, condition)
            .order_by(SearchRow.created_at, SearchRow.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        id = self._connection.execute(oldest).scalar_one_or_none()
        if id is None:
            return None
        statement = (
            update(SearchRow)
            .where(SearchRow.id == id)
            .values(
                state="running", owner=owner, lease_until=lease_until, started_at=now, attempt=SearchRow.attempt + 1
            )
            .returning(SearchRow.attempt)
        )
        attempt = self._connection.execute(statement).scalar_one()
        self._events.append(id, "running", {"attempt": attempt}, now)
        return self.get(id)

    def _still_own(self, id: str, owner: str, attempt: int) -> bool:
        row = self._connection.execute(_state_of(id).with_for_update()).one_or_none()
        return row is not None and (row.state, row.owner, row.attempt) == ("running", owner, attempt)

    def _locked(self, condition: ColumnElement[bool]) -> list[str]:
        """Ids of live searches, locked in the order of their ids; those that somebody else is changing are left out."""
        query = select(SearchRow.id).where(_ALIVE, condition).order_by(SearchRow.id)
        return list(self._connection.execute(query.with_for_update(skip_locked=True)).scalars())

    def _write_result(self, id: str, result: SearchResult, now: datetime) -> None:
        values = values_of(result)
        del values["plans"]
        Plans(self._connection).put(result.plans)
        ranked = [
            {"search_id": id, "rank": rank, "plan_id": plan.id} for rank, plan in enumerate(result.plans, start=1)
        ]
        if ranked:
            self._connection.execute(insert(SearchPlanRow), ranked)
        self._end(id, "done", {"status": result.status}, now, **values)

    def _want(self, id: str) -> None:
        """Take back that its end was asked for."""
        asked = update(SearchRow).where(SearchRow.id == id, SearchRow.cancel_requested.is_(True))
        self._connection.execute(asked.values(cancel_requested=False))

    def _put_back(self, id: str, now: datetime, **values: Any) -> None:
        waiting = {"state": "queued", "owner": None, "lease_until": None, "started_at": None, **values}
        self._connection.execute(update(SearchRow).where(SearchRow.id == id).values(**waiting))
        self._events.append(id, "queued", {}, now)

    def _end(self, id: str, state: str, told: Json, now: datetime, **values: Any) -> None:
        ended = {"state": state, "owner": None, "lease_until": None, "finished_at": now, **values}
        self._connection.execute(update(SearchRow).where(SearchRow.id == id).values(**ended))
        self._events.append(id, state, told, now)


def _state_of(id: str) -> Any:
    columns = (SearchRow.state, SearchRow.owner, SearchRow.attempt, SearchRow.lease_until)
    return select(*columns).where(SearchRow.id == id)


def _asked_of(code: Code) -> ColumnElement[bool]:
    return and_(
        SearchRow.cost_model_version == code.cost_model_version, SearchRow.search_version == code.search_version
    )


def _free(now: datetime, most_attempts: int | None = None) -> ColumnElement[bool]:
    """Queued, or lost by an owner whose lease ran out."""
    lost = [SearchRow.state == "running", SearchRow.lease_until < now, SearchRow.cancel_requested.is_(False)]
    if most_attempts is not None:
        lost.append(SearchRow.attempt < most_attempts)
    return or_(SearchRow.state == "queued", and_(*lost))
