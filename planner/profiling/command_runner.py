"""The runner ``command``: the user's own launch command, from their own configuration file."""

from __future__ import annotations

import os
import shutil

from planner.export.job import Job
from planner.profiling.local import OnThisMachine
from planner.profiling.runner import CantStart, TrialJob
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
        words, environment = self._template.words(trial), self._template.environment(trial)
        path = {**os.environ, **environment}.get("PATH")
        if shutil.which(words[0], path=path) is None:
            raise CantStart(f"{words[0]}: no such program is on this machine (the first word of [command] argv)")
        return self._guarded.start(trial, words, environment)
