"""The runner ``command``: the user's own launch command, from their own configuration file."""

from __future__ import annotations

from planner.export.job import Job
from planner.profiling.local import OnThisMachine
from planner.profiling.runner import TrialJob
from planner.profiling.template import Template


class CommandRunner(OnThisMachine):
    """One trial at a time. What it measures is read from JSON lines or from the log of its framework."""

    name = "command"

    def __init__(self, template: Template) -> None:
        super().__init__()
        self._template = template

    def check(self, job: Job) -> None:
        self._template.check(job)

    def start(self, trial: TrialJob) -> str:
        return self._guarded.start(trial, self._template.words(trial), self._template.environment(trial))
