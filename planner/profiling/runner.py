"""What a runner is: something that starts a trial, finds it again, and ends it with all that it started.

A trial is known by its **handle**, plain text that is stored with it: whoever takes the trial over after a crash finds
what runs by it, or that nothing does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from costmodel.errors import PlannerError
from planner.export.job import Job

State = Literal["waiting", "running", "done", "gone", "abandoned"]
"""Queued by a scheduler, at work, ended by itself, nowhere to be found, or ended since its worker gave no sign."""


class RunnerAway(PlannerError):
    """What runs the trials can't be asked right now; they may well go on."""


class CantStart(PlannerError):
    """No trial can be started as things stand, which is no plan's fault: a program or a partition that isn't there."""


@dataclass(frozen=True, kw_only=True)
class TrialJob:
    """A plan to run for a few steps.

    Attributes:
        key: of the trial, unique among all studies: letters, digits and dashes.
        job: the plan with its scenario.
        folder: of this trial alone: its files, its log (``log.txt``), its ``metrics.jsonl``, and its ``exit_code``.
        steps, warm_up: how many steps count, and how many come before.
        timeout_s: longest that a step may take.
    """

    key: str
    job: Job
    folder: Path
    steps: int
    warm_up: int
    timeout_s: float

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def exit_code(self) -> Path:
        return self.folder / "exit_code"


class Runner(Protocol):
    """Where trials run."""

    name: str
    at_once: int
    """How many trials may run at a time."""
    outlives_worker: bool
    """Whether a trial goes on without the worker that started it, for another to go on watching."""

    def check(self, job: Job) -> None:
        """Accept a plan that can be run here.

        Raises:
            InvalidInput: it can't, with the reason; nothing is started for it.
        """

    def start(self, trial: TrialJob) -> str:
        """Start a trial; returns its handle.

        Raises:
            CantStart: no trial can be, as things stand.
            OSError: its files can't be written.
        """

    def find(self, trial: TrialJob) -> str | None:
        """The handle of a trial that somebody started whose handle was not kept; None where there is none.

        Raises:
            CantStart: nobody can say, as things stand.
        """

    def state(self, handle: str, trial: TrialJob) -> State:
        """How it stands.

        Raises:
            RunnerAway: nobody can say right now.
        """

    def stop(self, handle: str, trial: TrialJob) -> None:
        """End it, and everything that it started; nothing of it runs any more afterwards. Safe to repeat."""
