"""The runner ``command``: the user's own launch command, from their own configuration file."""

from __future__ import annotations

from planner.export.job import Job
from planner.profiling.local import Guarded
from planner.profiling.runner import State, TrialJob
from planner.profiling.template import Template


class CommandRunner:
    """One trial at a time. What it measures is read from JSON lines or from the log of its framework."""

    name = "command"
    at_once = 1
    outlives_worker = False

    def __init__(self, template: Template) -> None:
        self._template, self._guarded = template, Guarded()

    def check(self, job: Job) -> None:
        self._template.check(job)

    def start(self, trial: TrialJob) -> str:
        return self._guarded.start(trial, self._template.words(trial), self._template.environment(trial))

    def find(self, trial: TrialJob) -> str | None:
        """Nothing outlives its worker."""
        return None

    def state(self, handle: str, trial: TrialJob) -> State:
        return self._guarded.state(handle, trial)

    def stop(self, handle: str, trial: TrialJob) -> None:
        self._guarded.stop(handle, trial)
