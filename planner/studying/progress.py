"""What a study has seen so far, as stored, in the words of ``planner.tuning``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import numpy as np

from db import records
from db.repositories import Repositories
from planner.tuning.belief import Candidates, Tried
from planner.tuning.proposals import why_enough
from planner.tuning.study import Study

_LEAST_ERROR = 0.01


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A study at one moment.

    Attributes:
        plans: by the place of their candidate; all of them, or those that were tried.
        measurements: trial number -> what was measured.
    """

    study: records.Study
    candidates: tuple[records.StudyCandidate, ...]
    plans: Mapping[int, records.Plan]
    trials: tuple[records.Trial, ...]
    measurements: dict[int, records.Measurement]

    @classmethod
    def of(cls, repos: Repositories, study: records.Study, *, tried_only: bool = False) -> Progress:
        """The study as the store has it.

        Args:
            tried_only: without the plans of candidates that have no trial, of which there are hundreds: enough to tell
                how it stands, not to ask what comes next.
        """
        candidates, trials = tuple(repos.studies.candidates(study.id)), tuple(repos.studies.trials(study.id))
        wanted = [candidates[trial.place] for trial in trials] if tried_only else candidates
        found = {plan.id: plan for plan in repos.plans.get_many([candidate.plan_id for candidate in wanted])}
        measured = repos.measurements.of_study(study.id)
        return cls(
            study=study,
            candidates=candidates,
            plans={candidate.place: found[candidate.plan_id] for candidate in wanted},
            trials=trials,
            measurements={one.trial_number: one for one in measured if one.trial_number is not None},
        )

    @property
    def tried(self) -> list[Tried]:
        """Trials that are over."""
        return [self._tried(trial) for trial in self.trials if trial.outcome is not None]

    @property
    def running(self) -> list[int]:
        """Places of candidates that are run right now."""
        return [trial.place for trial in self.trials if trial.state == "running"]

    @property
    def best(self) -> tuple[records.Trial, records.Measurement] | None:
        """The fastest trial that ran to its end."""
        done = [
            (trial, self.measurements[trial.number])
            for trial in self.trials
            if trial.outcome == "ok" and trial.number in self.measurements
        ]
        return min(done, key=lambda one: one[1].step_time_s or np.inf, default=None)

    @cached_property
    def asked(self) -> Study:
        """The study to ask what comes next, and what is believed; candidates that run are still to be seen."""
        study = Study(self.tuning_candidates())
        for tried in self.tried:
            study.tell(tried)
        study.running(self.running)
        return study

    def tuning_candidates(self) -> Candidates:
        """The candidates in the words of ``planner.tuning``."""
        plans = [self.plans[place] for place in range(len(self.candidates))]
        predictions = [plan.prediction for plan in plans]
        memory = [prediction["memory"] for prediction in predictions]
        peaks = np.array([float(entry["peak_bytes"]) for entry in memory])
        highs = [entry.get("peak_interval_bytes", [entry["peak_bytes"]] * 2)[1] for entry in memory]
        return Candidates(
            predicted_s=np.array([float(prediction["step_time_s"]) for prediction in predictions]),
            peak_bytes=peaks,
            plans=[plan.plan for plan in plans],
            limit_bytes=float(max(entry["usable_bytes"] for entry in memory)),
            memory_error=float(np.median(np.array(highs) / peaks - 1.0)) or _LEAST_ERROR,
        )

    def is_late(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.study.deadline is not None and now >= self.study.deadline

    def _tried(self, trial: records.Trial) -> Tried:
        measured = self.measurements.get(trial.number)
        assert trial.outcome is not None
        return Tried(
            place=trial.place,
            status=trial.outcome,
            step_time_s=None if measured is None else measured.step_time_s,
            peak_bytes=None if measured is None else measured.peak_allocated_bytes,
        )


def why_over(progress: Progress, now: datetime) -> str | None:
    """Why a study is over, in words; None while it goes on."""
    if progress.is_late(now):
        return "its time is over"
    if progress.running:
        return why_enough(progress.asked.belief()) if progress.tried else None
    if len(progress.trials) >= progress.study.most_trials:
        return f"all {progress.study.most_trials} trials were run"
    if len(progress.trials) >= len(progress.candidates):
        return f"all {len(progress.candidates)} candidates were run"
    return why_enough(progress.asked.belief()) if progress.tried else None
