"""A user's own launch command, from their own configuration file, with a plan put in.

    [command]
    argv = ["torchrun", "--nproc-per-node", "{devices_per_node}", "pretrain_gpt.py", "{arguments}", "--mock-data"]
    target = "megatron-lm"                  # whose words {arguments} are; that of the plan's framework by default
    env = { NCCL_DEBUG = "WARN" }

``{name}`` stands for one word or a part of one and is replaced by text, never by shell syntax: there is no shell,
unless ``argv`` itself starts one. ``{arguments}``, a word of its own, stands for all arguments of the target's program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.base import Frozen, FrozenMap, FrozenMapping
from planner.export.job import Job
from planner.export.launch import Program
from planner.export.targets import load_target, target_of
from planner.profiling.runner import TrialJob

_NAME = re.compile(r"\{([a-z_]+)\}")
_ARGUMENTS = "{arguments}"


class Template(Frozen):
    """A launch command.

    Attributes:
        argv: its words.
        target, target_version: of ``planner export``; asked where ``{arguments}`` is among the words, or one is named.
        env: variables beside those that the plan needs, and those that are set anyway.
    """

    argv: tuple[str, ...]
    target: str | None = None
    target_version: str | None = None
    env: FrozenMapping[str, str] = FrozenMap({})

    def check(self, job: Job) -> None:
        """Accept a plan whose words can be said, with no name that means nothing.

        Raises:
            InvalidInput: the target can't say the plan, or a name in braces is unknown.
        """
        program = self._program(job)
        known = values_of(job) | dict.fromkeys(("folder", "key", "steps", "warm_up", "total_steps"), "")
        for word in self.argv:
            for name in _NAME.findall(word):
                if word == _ARGUMENTS:
                    continue
                if name not in known:
                    raise InvalidInput("command.argv", word, f"known are {{arguments}}, {_shown(known)}")
        if program is None and _ARGUMENTS in self.argv:
            expected = f"nothing says plans of {job.plan.framework} as arguments: name a target"
            raise InvalidInput("command.target", self.target, expected)

    def words(self, trial: TrialJob) -> list[str]:
        """The command for a trial; files that the arguments name are written into its folder."""
        program = self._program(trial.job)
        values = values_of(trial.job) | {
            "folder": str(trial.folder),
            "key": trial.key,
            "steps": str(trial.steps),
            "warm_up": str(trial.warm_up),
            "total_steps": str(trial.steps + trial.warm_up),
        }
        found: list[str] = []
        for word in self.argv:
            if word == _ARGUMENTS and program is not None:
                found += program.arguments
            else:
                found.append(_NAME.sub(lambda match: values.get(match[1], match[0]), word))
        if program is not None:
            trial.folder.mkdir(parents=True, exist_ok=True)
            for file in program.files:
                (trial.folder / file.name).write_text(file.text, encoding="utf-8")
        return found

    def environment(self, trial: TrialJob) -> dict[str, str]:
        """Variables: what the plan needs, and what the user set, who wins."""
        program = self._program(trial.job)
        return {
            **(program.environment if program is not None else {}),
            **self.env,
            "PLANNER_TRIAL_FOLDER": str(trial.folder),
        }

    def _program(self, job: Job) -> Program | None:
        if self.target is None and _ARGUMENTS not in self.argv:
            # A program of the user's own, which may run what the framework's can't.
            return None
        target = load_target(self.target) if self.target else target_of(job.plan.framework)
        if target is None or target.program is None:
            return None
        return target.program(job, self.target_version)


def values_of(job: Job) -> dict[str, str]:
    """What a plan's names stand for."""
    plan: Mapping[str, Any] = job.plan.model_dump(mode="json")
    axes = {name: str(value).lower() for name, value in plan.items() if isinstance(value, bool | int | float | str)}
    return axes | {
        "devices": str(job.plan.devices_used),
        "nodes": str(job.nodes),
        "devices_per_node": str(job.devices_per_node),
    }


def _shown(known: Mapping[str, str]) -> str:
    return ", ".join(f"{{{name}}}" for name in known)
