"""Answers about launching a plan."""

from __future__ import annotations

from api.schemas.answers.base import Answer


class LaunchedFile(Answer):
    """A text file of a launch."""

    name: str
    """A plain file name, relative to where the job is started."""
    text: str
    executable: bool
    """Whether it is a script."""


class LaunchFiles(Answer):
    """A plan in the words of one target: a training framework, a scheduler, or a trace of the step."""

    target: str
    version: str | None
    """Of the target, whose words these are; null where it has none that matter."""
    files: list[LaunchedFile]
    command: str
    """How people start it; empty where there is nothing to start."""
    notes: list[str]
    """What the plan leaves to the user."""
