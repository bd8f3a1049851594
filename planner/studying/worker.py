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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from costmodel.errors import InvalidInput, PlannerError
from costmodel.spec.plan import Plan
from db import records
from db.errors import StoreUnavailable
from db.store import Store
from planner.export.job import Job
from planner.profiling.measured import Measured
from planner.profiling.runner import Runner, TrialJob
from planner.profiling.watching import watch
from planner.studying.opening import prepare, request_of_study, settings_of
from planner.studying.progress import Progress
from planner.tuning.proposals import cannot_win, proposal_of, why_enough

LEASE_S = 60.0
"""Longer than a runner's guard waits for a frozen worker, so that a trial never runs twice at once."""
_MOST_ATTEMPTS = 3
_LOOK_S = 1.0
_PATIENCE_S = 300.0
_TAKEN = "another worker has it"
_LOST = "it took longer than its lease to give a sign, so others may run it now"
_log = logging.getLogger("planner.studying")

Listener = Callable[[records.Study, str], None]


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

    def run(self, study_id: str | None = None) -> None:
        """Work until ``stopping`` is set, or until that one study is over and nothing of it runs here.

        Raises:
            StoreUnavailable: the store was away for too long.
        """
        busy: list[tuple[threading.Thread, str]] = []
        away_since: float | None = None
        try:
            while not self.stopping.is_set():
                busy = [(thread, runner) for thread, runner in busy if thread.is_alive()]
                try:
                    begun, more = self._look(study_id, busy)
                    away_since = None
                except StoreUnavailable:
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

    def _look(
        self, study_id: str | None, busy: list[tuple[threading.Thread, str]]
    ) -> tuple[tuple[threading.Thread, str] | None, bool]:
        """Begin a trial if there is one to begin and room for it; and whether there may be more to do later."""
        with self.store.reading() as repos:
            studies = [
                study
                for study in repos.studies.to_work_on(list(self.runners))
                if study_id is None or study.id == study_id
            ]
        for study in studies:
            runner = self.runners[study.runner]
            if study.state == "preparing":
                self._prepare(study, runner)
                continue
            if self._ended(study):
                continue
            if sum(name == runner.name for _, name in busy) >= runner.at_once:
                continue
            trial = self._claim(study)
            if trial is not None:
                thread = threading.Thread(target=self._safely, args=(study, trial, runner), name="trial")
                thread.start()
                return (thread, runner.name), True
        return None, study_id is None or bool(studies)

    # -- studies --

    def _prepare(self, study: records.Study, runner: Runner) -> None:
        now = datetime.now(UTC)
        with self.store.writing() as repos:
            mine = repos.studies.claim_preparation(study.id, self.owner, now, now + timedelta(seconds=600))
        if mine is None:
            return
        self.heard(mine, "looking for candidates")
        try:
            done = prepare(self.store, mine, runner, datetime.now(UTC))
        except InvalidInput as error:
            with self.store.writing() as repos:
                repos.studies.end(study.id, "failed", str(error), datetime.now(UTC))
            self.heard(mine, f"failed: {error}")
            return
        if done:
            self.heard(mine, "ready")

    def _ended(self, study: records.Study) -> bool:
        """End a study that has seen enough, or whose budget is spent; whether it is over."""
        with self.store.reading() as repos:
            progress = Progress.of(repos, study)
        because = why_over(progress, datetime.now(UTC))
        if because is None:
            return False
        with self.store.writing() as repos:
            ended = repos.studies.end(study.id, "done", because, datetime.now(UTC))
        if ended:
            self.heard(study, f"done: {because}")
        return True

    def _claim(self, study: records.Study) -> records.Trial | None:
        """A trial for us: one that was lost, else the candidate that promises most."""
        now = datetime.now(UTC)
        until = now + timedelta(seconds=self.lease_s)
        with self.store.writing() as repos:
            lost = repos.studies.take_over(study.id, self.owner, now, until)
        if lost is not None:
            return lost
        with self.store.reading() as repos:
            progress = Progress.of(repos, study)
        place = progress.asked().ask()
        if place is None:
            return None
        found = proposal_of(progress.belief(), [other for other in progress.running if other != place])
        details = {} if found is None else {"gain": found.gain, "chance_to_fit": found.chance_to_fit}
        with self.store.writing() as repos:
            return repos.studies.begin(study.id, place, self.owner, details, now, until)

    # -- trials --

    def _safely(self, study: records.Study, trial: records.Trial, runner: Runner) -> None:
        """A trial, whatever happens: what nobody expected is its failure, not the worker's."""
        try:
            self._trial(study, trial, runner)
        except StoreUnavailable as error:
            _log.error("trial %d of %s is left to others: %s", trial.number, study.name, error)
        except Exception as error:
            expected = isinstance(error, PlannerError)
            _log.error("trial %d of %s failed", trial.number, study.name, exc_info=None if expected else error)
            self._finish(study, trial, None, Measured(status="failed", reason=f"{error}"))

    def _trial(self, study: records.Study, trial: records.Trial, runner: Runner) -> None:
        if trial.attempt > _MOST_ATTEMPTS:
            reason = f"{_MOST_ATTEMPTS} workers that ran it died"
            self._finish(study, trial, None, Measured(status="failed", reason=reason))
            return
        kept = _Kept(self, trial)
        with kept:
            plan_id, job = self._job(study, trial)
            found = self._found_again(study, trial, job, runner)
            if found is None:
                task = self._task(study, trial, job, f"{study.id[:12]}-{trial.number}-{trial.attempt}")
                self.heard(study, f"trial {trial.number} begins")
                handle = runner.start(task)
            else:
                task, handle = found
            kept.note(handle, {**trial.details, "key": task.key, "folder": str(task.folder)})
            with self.store.reading() as repos:
                best = Progress.of(repos, study).best
            best_s = best[1].step_time_s if best is not None and best[1].step_time_s else float("inf")
            measured = watch(
                runner,
                task,
                handle,
                hopeless=lambda steps: cannot_win(steps, best_s),
                stopped=kept.why_stopped,
            )
        if kept.lost:
            self.heard(study, f"trial {trial.number}: {_LOST}")
            return
        if measured.status == "stopped" and self.stopping.is_set():
            # Nothing is known of the plan: whoever works on the study next runs it anew.
            with self.store.writing() as repos:
                repos.studies.release(self.owner, datetime.now(UTC))
            return
        self._finish(study, trial, _Ran(plan_id=plan_id, plan=job.plan), measured)

    def _job(self, study: records.Study, trial: records.Trial) -> tuple[str, Job]:
        with self.store.reading() as repos:
            plan_id = repos.studies.candidates(study.id)[trial.place].plan_id
            plan = repos.plans.get(plan_id)
            request = request_of_study(repos, study)
        assert plan is not None, "foreign keys hold"
        name = f"{study.name}-{trial.number}"
        return plan_id, Job(scenario=request.scenario, plan=Plan.model_validate(plan.plan), name=name, plan_id=plan_id)

    def _found_again(
        self, study: records.Study, trial: records.Trial, job: Job, runner: Runner
    ) -> tuple[TrialJob, str] | None:
        """What a former owner started and still runs, or has ended by itself; what is half dead is cleared away."""
        if trial.attempt == 1:
            return None
        key = trial.details.get("key") or f"{study.id[:12]}-{trial.number}-{trial.attempt - 1}"
        task = self._task(study, trial, job, key)
        handle = trial.handle or runner.find(task)
        if handle is None:
            return None
        if runner.state(handle, task) == "gone":
            runner.stop(handle, task)
            return None
        return task, handle

    def _task(self, study: records.Study, trial: records.Trial, job: Job, key: str) -> TrialJob:
        settings = settings_of(study)
        return TrialJob(
            key=f"planner-{key}" if not key.startswith("planner-") else key,
            job=job,
            folder=self.folder / study.id / f"{trial.number}-{key.rsplit('-', 1)[-1]}",
            steps=settings.steps,
            warm_up=settings.warm_up,
            timeout_s=settings.step_timeout_s,
        )

    def _finish(self, study: records.Study, trial: records.Trial, ran: _Ran | None, measured: Measured) -> None:
        now = datetime.now(UTC)
        measurement = None if ran is None else _measurement(study, trial, ran, measured, now)
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                with self.store.writing() as repos:
                    written = repos.studies.finish(trial, measured.status, measured.reason, measurement, now)
                break
            except StoreUnavailable:
                if time.monotonic() > end:
                    raise
                time.sleep(_LOOK_S)
        said = measured.reason or (f"{measured.step_time_s:.4g} s a step" if measured.step_time_s else "")
        self.heard(study, f"trial {trial.number}: {measured.status}, {said}" if written else _TAKEN)


class _Kept:
    """Keeps a trial ours while it runs, from a thread of its own."""

    def __init__(self, worker: Worker, trial: records.Trial) -> None:
        self.worker, self.trial = worker, trial
        self.lost = False
        self._over = threading.Event()
        self._until = time.monotonic() + worker.lease_s
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> _Kept:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def note(self, handle: str, details: records.Json) -> None:
        """Store by what it is found again."""
        with self.worker.store.writing() as repos:
            self.lost |= not repos.studies.note(self.trial, handle=handle, details=details)

    def why_stopped(self) -> str | None:
        """Why the trial is to be stopped; None while it is wanted."""
        if self.lost or time.monotonic() > self._until:
            self.lost = True
            return _LOST
        if self.worker.stopping.is_set():
            return "its worker was stopped"
        return self._study_over

    _study_over: str | None = None

    def _renew(self) -> None:
        while not self._over.wait(self.worker.lease_s / 4.0):
            until = time.monotonic() + self.worker.lease_s
            try:
                with self.worker.store.writing() as repos:
                    kept = repos.studies.renew(self.trial, datetime.now(UTC) + timedelta(seconds=self.worker.lease_s))
                    now = repos.studies.trial(self.trial.study_id, self.trial.number)
            except StoreUnavailable:
                continue
            if kept:
                self._until = until
            elif now is not None and (now.owner, now.attempt) == (self.trial.owner, self.trial.attempt):
                self._study_over = "its study is over"
            else:
                self.lost = True


def why_over(progress: Progress, now: datetime) -> str | None:
    """Why a study is over, in words; None while it goes on."""
    if progress.is_late(now):
        return "its time is over"
    if progress.running:
        return why_enough(progress.belief()) if progress.tried else None
    if len(progress.trials) >= progress.study.most_trials:
        return f"all {progress.study.most_trials} trials were run"
    if len(progress.trials) >= len(progress.candidates):
        return f"all {len(progress.candidates)} candidates were run"
    return why_enough(progress.belief()) if progress.tried else None


@dataclass(frozen=True, kw_only=True)
class _Ran:
    """The plan that a trial ran."""

    plan_id: str
    plan: Plan

    def tokens_per_s_per_device(self, step_time_s: float | None) -> float | None:
        if not step_time_s:
            return None
        return self.plan.global_batch_size * self.plan.seq_len / (step_time_s * self.plan.devices_used)


def _measurement(
    study: records.Study, trial: records.Trial, ran: _Ran, measured: Measured, now: datetime
) -> records.Measurement | None:
    """What is kept of a trial; one that was stopped before it had measured anything leaves nothing."""
    status = measured.status
    if status == "stopped":
        if measured.step_time_s is None:
            return None
        status = "ok"
    step_time_s = measured.step_time_s if status == "ok" else None
    return records.Measurement(
        id=uuid4().hex,
        plan_id=ran.plan_id,
        study_id=study.id,
        trial_number=trial.number,
        status=status,
        step_time_s=step_time_s,
        tokens_per_s_per_device=ran.tokens_per_s_per_device(step_time_s),
        peak_allocated_bytes=measured.peak_allocated_bytes,
        peak_reserved_bytes=measured.peak_reserved_bytes,
        steps=len(measured.step_times_s) or None,
        job_id=trial.handle,
        environment=dict(measured.environment),
        note=measured.reason,
        log_tail=measured.log_tail,
        created_by=study.created_by,
        measured_at=now,
        created_at=now,
    )
