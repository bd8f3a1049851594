"""How people start a program themselves, on one line that they copy."""

from __future__ import annotations

from planner.export.job import Job
from planner.export.launch import Program
from planner.export.shell import launcher, quoted

_PORT = "29500"


def by_hand(program: Program, job: Job) -> str:
    """The command of one node; of several nodes, each says which it is in ``NODE_RANK`` and ``MASTER_ADDR``."""
    several = job.nodes > 1
    start = launcher(
        program,
        nodes=str(job.nodes),
        per_node=job.devices_per_node,
        rank='"$NODE_RANK"' if several else "0",
        address='"$MASTER_ADDR"' if several else "localhost",
        port=_PORT,
    )
    variables = [f"{name}={quoted(value)}" for name, value in program.environment.items()]
    return " ".join([*variables, *start, quoted(program.script), *map(quoted, program.arguments), '"$@"'])
