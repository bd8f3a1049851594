"""Searches: asked for, found again, listed. How they are worked on is ``search_work``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, bindparam, func, insert, or_, select, text, tuple_

from db.column_types import Digest, UtcDateTime, is_storable
from db.records import NewSearch, Page, Search, SearchResult
from db.repositories.events import Events
from db.repositories.search_work import SearchWork
from db.repositories.statements import insert_unless_there, page_by_creation, record_of, table_of, values_of
from db.tables import LIVE, CalibrationRow, ClusterRow, ModelRow, ScenarioRow, SearchRow

_MOST_EARLIER = 5


class Searches(SearchWork):
    """Searches and their answers."""

    def add(self, new: NewSearch, now: datetime) -> tuple[Search, bool]:
        """The live search for the same key, seed and time; a queued one if there is none.

        Any number of callers may ask at once: one of them makes it. If its end was asked for, somebody wants it again.

        Returns:
            The search, and whether it is new.
        """
        queued = {"state": "queued", "attempt": 0, "cancel_requested": False, "created_at": now}
        values = {**values_of(new), **queued}
        alive = _WHOLE.where(
            SearchRow.key == new.key,
            SearchRow.seed == new.seed,
            SearchRow.max_seconds == new.max_seconds,
            text(f"searches.{LIVE}"),
        )
        # The one that stood in the way may be finished by the time it is looked for.
        while True:
            if insert_unless_there(self._connection, SearchRow, values, ("key", "seed", "max_seconds"), text(LIVE)):
                Events(self._connection).append(new.id, "queued", {}, now)
                return self._sure(new.id), True
            row = self._connection.execute(alive).one_or_none()
            if row is not None:
                self._want(row.id)
                return record_of(Search, row), False

    def store_answer(self, new: NewSearch, result: SearchResult, now: datetime) -> Search:
        """Keep a search that was run elsewhere, done at once."""
        # It is never alive, since a server that shares the database may be at the same question.
        self._connection.execute(
            insert(SearchRow).values(
                **values_of(new),
                state="done",
                attempt=0,
                cancel_requested=False,
                created_at=now,
                started_at=now,
            )
        )
        self._write_result(new.id, result, now)
        return self._sure(new.id)

    def get(self, id: str) -> Search | None:
        """The search of that id."""
        if not is_storable(id):
            return None
        row = self._connection.execute(_ONE, {"id": id}).one_or_none()
        return None if row is None else record_of(Search, row)

    def answered(self, key: str, seed: int, max_seconds: float) -> Search | None:
        """A finished search whose answer is the answer to this question.

        A proven answer is, whatever the seed and the time; one that a deadline cut is for the same seed and at most
        its time. Proven ones come first, newer ones before older ones.
        """
        asked = {"key": key, "seed": seed, "max_seconds": max_seconds}
        row = self._connection.execute(_ANSWERED, asked).one_or_none()
        return None if row is None else record_of(Search, row)

    def standing(self, keys: Sequence[str], seed: int, max_seconds: float) -> dict[str, Search]:
        """How each of many questions stands, by key; those that nobody asked are left out.

        The answer, as ``answered`` has it; else the search on its way; else the last that ended without an answer.
        """
        rows = self._connection.execute(_STANDING, {"keys": list(keys)})
        found: dict[str, Search] = {}
        for search in sorted((_search(row) for row in rows), key=lambda search: search.created_at):
            held = found.get(search.key)
            of_use = _use_of(search, seed, max_seconds)
            if of_use and (held is None or of_use >= _use_of(held, seed, max_seconds)):
                found[search.key] = search
        return found

    def earlier(self, search: Search) -> list[Search]:
        """Answers to the same question under other calibrations or other code that were there before a finished search.

        The newest of each, newest first. What comes later is none of them, and takes the place of none.
        """
        asked = {"problem_key": search.problem_key, "key": search.key, "before": search.finished_at, "id": search.id}
        return [record_of(Search, row) for row in self._connection.execute(_EARLIER, asked)]

    def list(
        self,
        *,
        state: str | None = None,
        status: str | None = None,
        model: str | None = None,
        cluster: str | None = None,
        since: datetime | None = None,
        parts: bool = False,
        after: tuple[Any, str] | None = None,
        limit: int,
    ) -> Page:
        """A page of searches, newest first.

        Args:
            since: when the oldest was asked.
            parts: model and cluster are parts of names, whatever the case of their letters.
        """
        query = _WHOLE
        for column, value in ((SearchRow.state, state), (SearchRow.status, status)):
            query = query if value is None else query.where(column == value)
        for row, reference, value in (
            (ModelRow, ScenarioRow.model_id, model),
            (ClusterRow, ScenarioRow.cluster_id, cluster),
        ):
            if value is not None and parts:
                # Few rows have names, so that they are looked through once and not for every search.
                query = query.where(reference.in_(select(row.id).where(row.name.icontains(value, autoescape=True))))
            elif value is not None:
                query = query.where(row.name == value)
        if since is not None:
            query = query.where(SearchRow.created_at >= since)
        return page_by_creation(
            self._connection, query, table_of(SearchRow).c.created_at, table_of(SearchRow).c.id, after, limit, _search
        )

    def _sure(self, id: str) -> Search:
        return record_of(Search, self._connection.execute(_ONE, {"id": id}).one())


def _search(row: Row[Any]) -> Search:
    return record_of(Search, row)


def _use_of(search: Search, seed: int, max_seconds: float) -> int:
    """What a search is worth to a question of its key: proven, cut by the deadline, on its way, over without an answer.

    0 where it is the answer to another: cut earlier than this one would be, or of another seed.
    """
    if search.state == "done" and (search.proven_top_k or search.status == "infeasible"):
        return 4
    if search.seed != seed or search.max_seconds < max_seconds:
        return 0
    if search.state == "done":
        return 3
    same = search.max_seconds == max_seconds
    return 0 if not same else 2 if search.state in ("queued", "running") else 1


_JOINED = {
    "calibration": CalibrationRow.name,
    "model": ModelRow.name,
    "cluster": ClusterRow.name,
    "devices": ScenarioRow.devices,
    "global_batch_size": ScenarioRow.global_batch_size,
    "seq_len": ScenarioRow.seq_len,
}
_WHOLE: Select[Any] = (
    select(
        *(getattr(SearchRow, field.name) for field in fields(Search) if field.name not in _JOINED),
        *(column.label(name) for name, column in _JOINED.items()),
    )
    .join(CalibrationRow, CalibrationRow.id == SearchRow.calibration_id)
    .join(ScenarioRow, ScenarioRow.id == SearchRow.scenario_id)
    .join(ModelRow, ModelRow.id == ScenarioRow.model_id)
    .join(ClusterRow, ClusterRow.id == ScenarioRow.cluster_id)
)


def _answered() -> Select[Any]:
    proven = or_(SearchRow.proven_top_k.is_(True), SearchRow.status == "infeasible")
    same = (SearchRow.seed == bindparam("seed")) & (SearchRow.max_seconds >= bindparam("max_seconds"))
    return (
        _WHOLE.where(SearchRow.key == bindparam("key"), SearchRow.state == "done", or_(proven, same))
        .order_by(proven.desc(), SearchRow.finished_at.desc(), SearchRow.id.desc())
        .limit(1)
    )


def _earlier() -> Select[Any]:
    newest_first = (SearchRow.finished_at.desc(), SearchRow.id.desc())
    place = tuple_(bindparam("before", type_=UtcDateTime()), bindparam("id", type_=Digest()))
    ranked = (
        select(SearchRow.id, func.row_number().over(partition_by=SearchRow.key, order_by=newest_first).label("place"))
        .where(
            SearchRow.problem_key == bindparam("problem_key"),
            SearchRow.key != bindparam("key"),
            SearchRow.state == "done",
            tuple_(SearchRow.finished_at, SearchRow.id) < place,
        )
        .subquery()
    )
    newest = _WHOLE.join(ranked, ranked.c.id == SearchRow.id).where(ranked.c.place == 1)
    return newest.order_by(*newest_first).limit(_MOST_EARLIER)


# What every request asks is built once: SQLAlchemy takes longer to build a statement than SQLite to run it.
_ONE = _WHOLE.where(SearchRow.id == bindparam("id"))
_ANSWERED = _answered()
_EARLIER = _earlier()
_STANDING = _WHOLE.where(SearchRow.key.in_(bindparam("keys", expanding=True)))
