"""What an export gives: files, the program that reads them, and what the user still has to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from costmodel.errors import InvalidInput

Launcher = Literal["torchrun", "python"]


def plain_file_name(name: str) -> str:
    """The name, if it names a file of the folder that it is written into and none elsewhere.

    Raises:
        InvalidInput: it has folders in it.
    """
    if not name or name in (".", "..") or any(mark in name for mark in "/\\\0"):
        raise InvalidInput("files", name, "a plain file name is expected")
    return name


@dataclass(frozen=True, kw_only=True)
class LaunchFile:
    """A text file.

    Attributes:
        name: a plain file name, relative to where the job is started.
        executable: whether it is a script.
    """

    name: str
    text: str
    executable: bool = False


@dataclass(frozen=True, kw_only=True)
class Program:
    """What every node of a job starts.

    Attributes:
        launcher: ``torchrun`` starts a process for each device; ``python`` one for each node.
        script: the training program, as its framework calls it; the user's own may stand in for it.
        module: whether ``script`` is a module's name and no file (``-m``).
        arguments: after the script, one word each, unquoted.
        environment: variables that the plan needs.
        files: what the arguments name.
        notes: what the plan leaves to the user (data, tokenizer, learning rate), a sentence each.
    """

    launcher: Launcher
    script: str
    module: bool = False
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    files: tuple[LaunchFile, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A plan in the words of one target.

    Attributes:
        target, version: the target, and its version; None where it has none that matter.
        files: the first is the one that people look at.
        command: how to start it, for people to copy; empty where there is nothing to start.
        notes: as in ``Program``.
    """

    target: str
    version: str | None
    files: tuple[LaunchFile, ...]
    command: str = ""
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As ``planner export --json`` prints it and the API answers it."""
        return {
            "target": self.target,
            "version": self.version,
            "files": [{"name": file.name, "text": file.text, "executable": file.executable} for file in self.files],
            "command": self.command,
            "notes": list(self.notes),
        }
