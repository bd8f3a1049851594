"""Studies, what they may run, and who runs what.

A worker owns a trial for as long as it renews the lease; one whose lease ran out is anybody's. What it measured counts
from the owner of the current attempt alone, and is written in the transaction that ends the trial.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, case, delete, func, insert, or_, select, update

from costmodel.errors import InvalidInput
from db.column_types import is_storable
from db.records import Json, Measurement, Page, Study, StudyCandidate, Trial
from db.repositories.measurements import Measurements
from db.repositories.statements import insert_unless_there, page_by_creation, record_of, table_of, values_of
from db.tables import StudyCandidateRow, StudyRow, TrialRow


class Studies:
    """Studies; names are unique."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- studies --

    def add(self, record: Study) -> None:
        """Keep a study.

        Raises:
            InvalidInput: another study has that name.
        """
        if not insert_unless_there(self._connection, StudyRow, values_of(record), ("name",)):
            raise InvalidInput("name", record.name, "a name that no other study has is expected")

    def get(self, id: str) -> Study | None:
        """The study of that id."""
        if not is_storable(id):
            return None
        row = self._connection.execute(select(StudyRow.__table__).where(StudyRow.id == id)).one_or_none()
        return None if row is None else record_of(Study, row)

    def named(self, name: str) -> Study | None:
        """The study of that name."""
        if not is_storable(name):
            return None
        row = self._connection.execute(select(StudyRow.__table__).where(StudyRow.name == name)).one_or_none()
        return None if row is None else record_of(Study, row)

    def list(self, after: tuple[Any, str] | None = None, limit: int = 50, *, state: str | None = None) -> Page:
        """A page of studies, newest first."""
        table = table_of(StudyRow)
        query = select(table) if state is None else select(table).where(table.c.state == state)
        return page_by_creation(
            self._connection, query, table.c.created_at, table.c.id, after, limit, lambda row: record_of(Study, row)
        )

    def to_work_on(self, runners: Collection[str], now: datetime) -> Sequence[Study]:
        """Studies of these runners that go on, or are over but for a trial that nobody owns any more; oldest first."""
        left = select(TrialRow.number).where(
            TrialRow.study_id == StudyRow.id, TrialRow.state == "running", TrialRow.lease_until < now
        )
        query = (
            select(StudyRow.__table__)
            .where(StudyRow.runner.in_(runners), or_(StudyRow.state.in_(("preparing", "open")), left.exists()))
            .order_by(StudyRow.created_at, StudyRow.id)
        )
        return [record_of(Study, row) for row in self._connection.execute(query)]

    def claim_preparation(self, id: str, owner: str, now: datetime, lease_until: datetime) -> Study | None:
        """The study, whose candidates are now for the owner to find; None when somebody does, or they are there."""
        free = and_(
            StudyRow.id == id,
            StudyRow.state == "preparing",
            or_(StudyRow.owner.is_(None), StudyRow.lease_until < now),
        )
        statement = (
            update(StudyRow)
            .where(free)
            .values(owner=owner, lease_until=lease_until, attempt=StudyRow.attempt + 1)
            .returning(StudyRow.__table__)
        )
        row = self._connection.execute(statement).one_or_none()
        return None if row is None else record_of(Study, row)

    def renew_preparation(self, study: Study, lease_until: datetime) -> bool:
        """Go on looking for candidates; False when that is the owner's no more."""
        statement = update(StudyRow).where(*_prepared_by(study)).values(lease_until=lease_until).returning(StudyRow.id)
        return self._connection.execute(statement).one_or_none() is not None

    def prepared(self, study: Study, candidates: Sequence[StudyCandidate]) -> bool:
        """Write the candidates of a study and open it; False, and nothing written, when it is the owner's no more."""
        mine = _prepared_by(study)
        opened = update(StudyRow).where(*mine).values(state="open", owner=None, lease_until=None).returning(StudyRow.id)
        if self._connection.execute(opened).one_or_none() is None:
            return False
        self._connection.execute(insert(StudyCandidateRow), [values_of(candidate) for candidate in candidates])
        return True

    def end(self, id: str, state: str, because: str, now: datetime) -> bool:
        """End a study that goes on; trials that run are stopped by their owners. False when it was over."""
        statement = (
            update(StudyRow)
            .where(StudyRow.id == id, StudyRow.state.in_(("preparing", "open")))
            .values(state=state, ended_because=because, ended_at=now, owner=None, lease_until=None)
            .returning(StudyRow.id)
        )
        return self._connection.execute(statement).one_or_none() is not None

    def reopen(self, id: str, most_trials: int, deadline: datetime | None) -> bool:
        """Go on with a study under another budget; one whose candidates were never found is prepared anew."""
        has_candidates = select(StudyCandidateRow.place).where(StudyCandidateRow.study_id == id).exists()
        statement = (
            update(StudyRow)
            .where(StudyRow.id == id)
            .values(most_trials=most_trials, deadline=deadline, ended_at=None, ended_because="")
            # Whoever prepares it right now goes on doing so.
            .values(
                state=case((has_candidates, "open"), else_="preparing"),
                attempt=case((StudyRow.state == "preparing", StudyRow.attempt), else_=0),
            )
            .returning(StudyRow.id)
        )
        return self._connection.execute(statement).one_or_none() is not None

    def candidates(self, id: str) -> Sequence[StudyCandidate]:
        """What a study may run, in the order of their places."""
        query = (
            select(StudyCandidateRow.__table__)
            .where(StudyCandidateRow.study_id == id)
            .order_by(StudyCandidateRow.place)
        )
        return [record_of(StudyCandidate, row) for row in self._connection.execute(query)]

    # -- trials --

    def trials(self, id: str) -> Sequence[Trial]:
        """The trials of a study, in their order."""
        query = select(TrialRow.__table__).where(TrialRow.study_id == id).order_by(TrialRow.number)
        return [record_of(Trial, row) for row in self._connection.execute(query)]

    def trial(self, id: str, number: int) -> Trial | None:
        """One trial of a study."""
        query = select(TrialRow.__table__).where(TrialRow.study_id == id, TrialRow.number == number)
        row = self._connection.execute(query).one_or_none()
        return None if row is None else record_of(Trial, row)

    def begin(
        self, id: str, place: int, owner: str, details: Json, now: datetime, lease_until: datetime
    ) -> Trial | None:
        """A new trial of a candidate, the owner's from now on.

        Returns:
            None, and nothing was written, when the study is not open, has had all its trials, or somebody runs or ran
            that candidate.
        """
        locked = select(StudyRow.most_trials).where(StudyRow.id == id, StudyRow.state == "open").with_for_update()
        study = self._connection.execute(locked).one_or_none()
        so_far = select(func.count(), func.max(TrialRow.number)).where(TrialRow.study_id == id)
        count, last = self._connection.execute(so_far).one()
        if study is None or count >= study.most_trials:
            return None
        trial = Trial(
            study_id=id,
            number=0 if last is None else last + 1,
            place=place,
            state="running",
            outcome=None,
            attempt=1,
            owner=owner,
            lease_until=lease_until,
            handle=None,
            details=details,
            created_at=now,
            ended_at=None,
            reason="",
        )
        unique = ("study_id", "place")
        return trial if insert_unless_there(self._connection, TrialRow, values_of(trial), unique) else None

    def take_over(self, id: str, owner: str, now: datetime, lease_until: datetime) -> Trial | None:
        """A trial whose owner gave no sign for longer than its lease, now the new owner's; None where there is none."""
        lost = (
            select(TrialRow.number)
            .where(TrialRow.study_id == id, TrialRow.state == "running", TrialRow.lease_until < now)
            .order_by(TrialRow.number)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        statement = (
            update(TrialRow)
            .where(TrialRow.study_id == id, TrialRow.number == lost.scalar_subquery())
            .values(owner=owner, lease_until=lease_until, attempt=TrialRow.attempt + 1)
            .returning(TrialRow.__table__)
        )
        row = self._connection.execute(statement).one_or_none()
        return None if row is None else record_of(Trial, row)

    def renew(self, trial: Trial, lease_until: datetime) -> bool:
        """Keep a trial; False when it is the owner's no more, or its study is over."""
        going_on = select(StudyRow.id).where(StudyRow.id == trial.study_id, StudyRow.state == "open")
        statement = (
            update(TrialRow)
            .where(*_mine(trial), going_on.exists())
            .values(lease_until=lease_until)
            .returning(TrialRow.number)
        )
        return self._connection.execute(statement).one_or_none() is not None

    def note(self, trial: Trial, *, handle: str | None = None, details: Json | None = None) -> bool:
        """Write by what a trial is found again, or how far it is; False when it is the owner's no more."""
        values = {name: value for name, value in (("handle", handle), ("details", details)) if value is not None}
        statement = update(TrialRow).where(*_mine(trial)).values(**values).returning(TrialRow.number)
        return self._connection.execute(statement).one_or_none() is not None

    def finish(self, trial: Trial, outcome: str, reason: str, measurement: Measurement | None, now: datetime) -> bool:
        """End a trial with what it measured.

        Returns:
            False, and nothing was written, when it is the owner's no more in this attempt.
        """
        statement = (
            update(TrialRow)
            .where(*_mine(trial))
            .values(state="done", outcome=outcome, reason=reason, ended_at=now, owner=None, lease_until=None)
            .returning(TrialRow.number)
        )
        if self._connection.execute(statement).one_or_none() is None:
            return False
        if measurement is not None:
            Measurements(self._connection).add(measurement)
        return True

    def close_left(self, runners: Collection[str], now: datetime) -> int:
        """End trials that nobody runs of studies that are over; how many there were.

        Those that were put back, and, of runners whose trials end with their worker, those whose lease ran out.

        Args:
            runners: of which a trial without a worker runs no more.
        """
        over = select(StudyRow.id).where(StudyRow.state.not_in(("preparing", "open")))
        put_back = and_(TrialRow.owner.is_(None), TrialRow.handle.is_(None))
        dead = and_(TrialRow.lease_until < now, TrialRow.study_id.in_(over.where(StudyRow.runner.in_(runners))))
        statement = (
            update(TrialRow)
            .where(TrialRow.state == "running", TrialRow.study_id.in_(over), or_(put_back, dead))
            .values(state="done", outcome="stopped", reason="its study is over", ended_at=now, owner=None)
            .values(lease_until=None)
            .returning(TrialRow.number)
        )
        return len(self._connection.execute(statement).all())

    def withdraw(self, trial: Trial) -> bool:
        """Forget a trial of which nothing was ever started; False when it is the owner's no more."""
        statement = delete(TrialRow).where(*_mine(trial)).returning(TrialRow.number)
        return self._connection.execute(statement).one_or_none() is not None

    def release(self, trial: Trial, now: datetime, *, handle: str | None = None, details: Json | None = None) -> bool:
        """Let go of a trial: others may take it over at once. False when it is the owner's no more.

        Args:
            handle: by which they find it again; None where nothing of it runs.
        """
        values = {} if details is None else {"details": details}
        statement = (
            update(TrialRow)
            .where(*_mine(trial))
            .values(lease_until=now, owner=None, handle=handle, **values)
            .returning(TrialRow.number)
        )
        return self._connection.execute(statement).one_or_none() is not None


def _prepared_by(study: Study) -> tuple[Any, ...]:
    return (
        StudyRow.id == study.id,
        StudyRow.state == "preparing",
        StudyRow.owner == study.owner,
        StudyRow.attempt == study.attempt,
    )


def _mine(trial: Trial) -> tuple[Any, ...]:
    return (
        TrialRow.study_id == trial.study_id,
        TrialRow.number == trial.number,
        TrialRow.state == "running",
        TrialRow.owner == trial.owner,
        TrialRow.attempt == trial.attempt,
    )
