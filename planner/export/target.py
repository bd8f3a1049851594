"""What a target is: something that a plan can be written for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.export.job import Job
from planner.export.launch import Launch, Program
from planner.export.reading import Read

Kind = Literal["framework", "scheduler", "picture"]

Write: TypeAlias = Callable[[Job, str | None], Launch]
"""From a job and a target version (None: the usual one) to files."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One target.

    Attributes:
        name: as ``--target`` has it.
        aliases: what people also call it.
        title: as people call it.
        kind: a training framework's own configuration, a scheduler's job around one, or a picture of the step.
        frameworks: of the catalog, whose plans it takes; empty for all.
        versions: that it tells apart, oldest first.
        write: raises ``Inexpressible`` where the plan can't be said.
        options: of ``SchedulerOptions``, those that it has a word for, by their names there.
        program: what each node runs, for schedulers to wrap; None where it is nothing that runs.
        read: what a file of the target says of a plan; None where it is not read.
        verified: how its output is held against the real thing, for the documentation.
    """

    name: str
    aliases: tuple[str, ...] = ()
    title: str
    kind: Kind
    frameworks: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    write: Write
    program: Callable[[Job, str | None], Program] | None = None
    read: Callable[[str], Read] | None = None
    verified: str
