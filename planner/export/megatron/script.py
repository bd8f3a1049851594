"""The launch script of every node, and a program's arguments alone."""

from __future__ import annotations

from collections.abc import Iterable

from planner.export.job import Job
from planner.export.launch import Program
from planner.export.shell import array, comment, exports, torchrun


def launch_script(job: Job, program: Program, header: Iterable[str]) -> str:
    """Starts the program on the node with ``NODE_RANK``, and passes on what stands behind it.

    Args:
        header: lines of a comment, whatever is in them.
    """
    lines = [
        "#!/usr/bin/env bash",
        *(f"# {comment(line)}" for line in header),
        "set -euo pipefail",
        "",
        *exports(program.environment),
        "",
        *array("ARGS", program.arguments),
        "",
        *torchrun(
            program,
            nodes=str(job.nodes),
            per_node=job.devices_per_node,
            rank='"${NODE_RANK:-0}"',
            address='"${MASTER_ADDR:-127.0.0.1}"',
            port='"${MASTER_PORT:-29500}"',
        ),
    ]
    return "\n".join(lines) + "\n"


def argument_lines(program: Program) -> str:
    """A flag with its values on each line, quoted as a shell needs it."""
    return "\n".join(line.strip() for line in array("", program.arguments)[1:-1]) + "\n"
