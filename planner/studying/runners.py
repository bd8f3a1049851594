"""Runners by name, from the user's launch file.

# trials.toml
[command]                       # what the runner `command`, and `slurm` on each node, starts
argv = ["torchrun", "--nproc-per-node", "{devices_per_node}", "pretrain_gpt.py", "{arguments}", "--mock-data"]

[slurm]                         # how the runner `slurm` submits
at_once = 4
options = ["--partition=gpu", "--account=research"]
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from costmodel.catalog.documents import read_text
from costmodel.errors import InvalidInput, Missing, UnreadableFile
from costmodel.spec.validation import build
from planner.profiling.command_runner import CommandRunner
from planner.profiling.local_runner import LocalRunner
from planner.profiling.runner import Runner
from planner.profiling.slurm_runner import SlurmRunner, SlurmSettings
from planner.profiling.template import Template
from planner.studying.settings import RUNNERS

_TABLES = ("command", "slurm")


def runner_named(name: str, launch_file: str | None) -> Runner:
    """The runner of that name.

    Args:
        launch_file: of the user; never a request's.

    Raises:
        InvalidInput: there is no such runner, it needs a launch file, or the file is wrong.
    """
    tables = _tables(launch_file) if launch_file is not None else {}
    template = build(Template, tables["command"], where="command") if "command" in tables else None
    if name == "local":
        return LocalRunner()
    if name == "command":
        if template is None:
            raise Missing("launch", "--runner command needs --launch FILE with a [command] table: argv = [...]")
        return CommandRunner(template)
    if name == "slurm":
        return SlurmRunner(build(SlurmSettings, tables.get("slurm", {}), where="slurm"), template)
    raise InvalidInput("runner", name, f"{', '.join(RUNNERS)} are known")


def _tables(path: str) -> dict[str, dict[str, Any]]:
    try:
        found = tomllib.loads(read_text(Path(path), "launch"))
    except tomllib.TOMLDecodeError as error:
        raise UnreadableFile("launch", path, f"it must be TOML: {error}") from None
    for name, table in found.items():
        if name not in _TABLES or not isinstance(table, dict):
            raise InvalidInput(
                "launch", name, f"the tables {' and '.join(f'[{known}]' for known in _TABLES)} are known"
            )
    return found
