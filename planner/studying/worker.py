"""A worker: runs trials of studies, one or several at a time, for as long as it is wanted.

Any number of workers, on any number of machines, may work on the same studies. Each trial has one owner with a lease; a
worker that dies, or freezes for longer than the lease, loses its trials to the next that looks, and what it measured
after that counts for nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from costmodel.errors import PlannerError
from db import records
from db.errors import StoreUnavailable
from db.store import Store
from planner.profiling.measured import Measured
from planner.profiling.runner import CantStart, Runner, RunnerAway, TrialJob
from planner.profiling.watching import ABANDONED, watch
from planner.studying.keeping import LOST, OVER, Kept
from planner.studying.preparing import Listener, prepare_in_turn
from planner.studying.progress import Progress, why_over
from planner.studying.recording import Ran, check_room, measurement_of
from planner.studying.telling import begins_in_words
from planner.studying.trial_jobs import found_again, job_of, task_of
from planner.tuning.proposals import cannot_win, proposal_of

LEASE_S = 60.0
"""Longer than a runner's guard waits for a frozen worker, so that a trial never runs twice at once."""
_MOST_ATTEMPTS = 3
_LOOK_S = 1.0
_PATIENCE_S = 300.0
_TAKEN = "another worker has it"
_log = logging.getLogger("planner.studying")


class TrialsHaveNoRoom(PlannerError):
    """The files of trials can't be written, or processes not be started, which is no plan's fault."""


class _Taken(Exception):
    """A trial that runs on without us is another worker's now."""


@dataclass(kw_only=True)
class Worker:
    """Runs trials.

    Attributes:
        runners: by name; studies of other runners are left to other workers.
        folder: where trials have their files.
        heard: is told of a study and what happened to it, in words.
        lease_s: for how long a claim or a renewal holds.
    """

    store: Store
    runners: Mapping[str, Runner]
    folder: Path
    heard: Listener = lambda study, said: None
    lease_s: float = LEASE_S
    owner: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}")
    stopping: threading.Event = field(default_factory=threading.Event)
    broken: PlannerError | None = None

    def run(self, study_id: str | None = None) -> None:
        """Work until ``stopping`` is set, or until that one study is over and nothing of it runs here.

        Raises:
            StoreUnavailable: the store was away for too long.
            TrialsHaveNoRoom: this machine can't run any; what was begun is left to others.
        """
        busy: list[tuple[threading.Thread, str]] = []
        away_since: float | None = None
        try:
            while not self.stopping.is_set():
                busy = [(thread, runner) for thread, runner in busy if thread.is_alive()]
                try:
                    begun, more = self._look(study_id, busy)
                    away_since = None
                except StoreUnavailable as error:
                    if away_since is None:
                        _log.warning("waiting for the store: %s", error)
                    away_since = away_since or time.monotonic()
                    if time.monotonic() - away_since > _PATIENCE_S:
                        raise
                    begun, more = None, True
                if begun is not None:
                    busy.append(begun)
                    continue
                if not more and not busy:
                    return
                self.stopping.wait(_LOOK_S)
        finally:
            self.stopping.set()
            for thread, _ in busy:
                thread.join()
        if self.broken is not None:
            raise self.broken

    def _look(
        self, study_id: str | None, busy: list[tuple[threading.Thread, str]]
    ) -> tuple[tuple[threading.Thread, str] | None, bool]:
        """Begin a trial if there is one to begin and room for it; and whether there may be more to do later."""
        with self.store.reading() as repos:
            studies = [
                study
                for study in repos.studies.to_work_on(list(self.runners), datetime.now(UTC))
                if study_id is None or study.id == study_id
            ]
        for study in studies:
            runner = self.runners[study.runner]
            if study.state == "preparing":
                prepare_in_turn(self.store, study, runner, owner=self.owner, lease_s=self.lease_s, heard=self.heard)
                continue
            full = sum(name == runner.name for _, name in busy) >= runner.at_once
            if full and (study.deadline is None or datetime.now(UTC) < study.deadline):
                # What is believed takes a second of a core to work out, which trials on this machine would feel.
                continue
            with self.store.reading() as repos:
                progress = Progress.of(repos, study)
            if study.state == "open" and self._ended(progress):
                continue
            if full:
                continue
            trial = self._claim(progress)
            if trial is not None:
                thread = threading.Thread(target=self._safely, args=(study, trial, runner), name="trial")
                thread.start()
                return (thread, runner.name), True
        return None, study_id is None or bool(studies)

    # -- studies --

    def _ended(self, progress: Progress) -> bool:
        """End a study that has seen enough, or whose budget is spent; whether it is over."""
        study, because = progress.study, why_over(progress, datetime.now(UTC))
        if because is None:
            return False
        with self.store.writing() as repos:
            ended = repos.studies.end(study.id, "done", because, datetime.now(UTC))
        if ended:
            self.heard(study, f"done: {because}")
        return True

    def _claim(self, progress: Progress) -> records.Trial | None:
        """A trial for us: one that was lost, else the candidate that promises most."""
        study, now = progress.study, datetime.now(UTC)
        until = now + timedelta(seconds=self.lease_s)
        with self.store.writing() as repos:
            lost = repos.studies.take_over(study.id, self.owner, now, until)
        if lost is not None or study.state != "open":
            return lost
        place = progress.asked.ask()
        if place is None:
            return None
        found = proposal_of(progress.asked.belief(), progress.running)
        details = {} if found is None else {"gain": found.gain, "chance_to_fit": found.chance_to_fit}
        with self.store.writing() as repos:
            return repos.studies.begin(study.id, place, self.owner, details, now, until)

    # -- trials --

    def _safely(self, study: records.Study, trial: records.Trial, runner: Runner) -> None:
        """A trial, whatever happens: what nobody expected is its failure, not the worker's."""
        try:
            self._tried(study, trial, runner)
        except StoreUnavailable as error:
            _log.error("trial %d of %s is left to others: %s", trial.number, study.name, error)

    def _tried(self, study: records.Study, trial: records.Trial, runner: Runner) -> None:
        try:
            self._trial(study, trial, runner)
        except StoreUnavailable:
            raise
        except RunnerAway as error:
            _log.warning("trial %d of %s waits: %s", trial.number, study.name, error)
            self.stopping.wait(_LOOK_S)
            self._release(trial, forget=False)
        except CantStart as error:
            if not self._ended_unstarted(study, trial, f"its trials can't be started: {error}"):
                self._finish(study, trial, None, Measured(status="failed", reason=f"{error}"))
        except OSError as error:
            self.broken = TrialsHaveNoRoom(f"{error.filename or self.folder}: {error.strerror or error}")
            self.heard(study, f"trial {trial.number} is left to others: {self.broken}")
            self.stopping.set()
            self._release(trial)
        except Exception as error:
            if not isinstance(error, PlannerError):
                _log.error("trial %d of %s failed", trial.number, study.name, exc_info=error)
            self._finish(study, trial, None, Measured(status="failed", reason=f"{error}"))

    def _ended_unstarted(self, study: records.Study, trial: records.Trial, because: str) -> bool:
        """End a study of which nothing was ever started, and forget the trial: once mended, its plan runs first.

        Returns:
            False where others were started: then it is this plan's fault, or passes.
        """
        with self.store.writing() as repos:
            begun = repos.studies.trials(study.id)
            died = trial.attempt - trial.details.get("released", 0) > 1
            if died or any(one.handle or one.state == "done" for one in begun):
                return False
            repos.studies.withdraw(trial)
            ended = repos.studies.end(study.id, "failed", because, datetime.now(UTC))
        if ended:
            self.heard(study, f"failed: {because}")
        return True

    def _trial(self, study: records.Study, trial: records.Trial, runner: Runner) -> None:
        if trial.attempt - trial.details.get("released", 0) > _MOST_ATTEMPTS:
            reason = f"{_MOST_ATTEMPTS} workers that ran it died"
            self._finish(study, trial, None, Measured(status="failed", reason=reason))
            return
        kept = Kept(self, trial)
        with kept:
            plan, job = job_of(self.store, study, trial)
            found = found_again(self.folder, study, trial, job, runner)
            if found is None:
                if study.state != "open":
                    self._finish(study, trial, None, Measured(status="stopped", reason=OVER))
                    return
                task = task_of(self.folder, study, trial, job, trial.attempt)
                self.heard(study, begins_in_words(trial, plan))
                handle = self._started(task, runner, kept)
            else:
                task, handle = found
            try:
                measured = self._watched(study, kept, task, handle, runner)
            except _Taken:
                measured = None
            except BaseException as error:
                if not (runner.outlives_worker and isinstance(error, StoreUnavailable | RunnerAway)):
                    # Nobody watches it any more.
                    runner.stop(handle, task)
                raise
        if measured is None or kept.lost:
            self.heard(study, f"trial {trial.number}: {LOST}")
            return
        if measured.status == "failed":
            check_room(task.folder)
        if measured.status == "stopped" and self.stopping.is_set():
            # Nothing is known of the plan: whoever works on the study next runs it anew.
            self._release(trial)
        elif measured.reason == ABANDONED:
            self.heard(study, f"trial {trial.number}: {ABANDONED}")
            self._release(trial, died=True)
        else:
            self._finish(study, trial, Ran(plan_id=plan.id, plan=job.plan), measured)

    def _started(self, task: TrialJob, runner: Runner, kept: Kept) -> str:
        """Start a trial, once the runner can be asked."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                # One that was started, whatever the answer: the runner was away when it should have come.
                return runner.find(task) or runner.start(task)
            except RunnerAway:
                if time.monotonic() > end or kept.why_stopped() is not None:
                    raise
                self.stopping.wait(_LOOK_S)

    def _watched(self, study: records.Study, kept: Kept, task: TrialJob, handle: str, runner: Runner) -> Measured:
        kept.note(handle, {**kept.trial.details, "key": task.key, "folder": str(task.folder)})
        with self.store.reading() as repos:
            best = Progress.of(repos, study, tried_only=True).best
        best_s = best[1].step_time_s if best is not None and best[1].step_time_s else float("inf")

        def stopped() -> str | None:
            why = kept.why_stopped()
            if kept.lost and runner.outlives_worker:
                raise _Taken
            return OVER if why is None and study.state != "open" else why

        return watch(runner, task, handle, hopeless=lambda steps: cannot_win(steps, best_s), stopped=stopped)

    def _release(self, trial: records.Trial, *, forget: bool = True, died: bool = False) -> None:
        """Let others have a trial at once.

        Args:
            forget: nothing of it runs; else it is found again by what was noted.
            died: counts as an attempt that a worker died of.
        """
        # Without the store its lease runs out, which comes to the same a little later.
        with suppress(StoreUnavailable), self.store.writing() as repos:
            now = repos.studies.trial(trial.study_id, trial.number)
            if now is None:
                return
            details = {
                name: value for name, value in now.details.items() if not forget or name not in ("key", "folder")
            }
            details["released"] = details.get("released", 0) + (not died)
            handle = None if forget else now.handle
            repos.studies.release(trial, datetime.now(UTC), handle=handle, details=details)

    def _finish(self, study: records.Study, trial: records.Trial, ran: Ran | None, measured: Measured) -> None:
        now = datetime.now(UTC)
        measurement = None if ran is None else measurement_of(study, trial, ran, measured, now)
        end, waits = time.monotonic() + _PATIENCE_S, False
        while True:
            try:
                with self.store.writing() as repos:
                    written = repos.studies.finish(trial, measured.status, measured.reason, measurement, now)
                break
            except StoreUnavailable as error:
                if time.monotonic() > end:
                    raise
                if not waits:
                    self.heard(study, f"trial {trial.number} has ended and waits to be written: {error}")
                waits = True
                time.sleep(_LOOK_S)
        said = measured.reason or (f"{measured.step_time_s:.4g} s a step" if measured.step_time_s else "")
        self.heard(study, f"trial {trial.number}: {measured.status}, {said}" if written else _TAKEN)
