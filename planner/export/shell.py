"""Words for a shell: every word that comes from a plan, a model or a user is quoted where it needs to be."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from planner.export.launch import Program

_INDENT = "    "
# Characters that schedulers allow in names of jobs; everything else becomes a dash.
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 60


def quoted(word: object) -> str:
    """The word as a shell reads it back."""
    return shlex.quote(str(word))


def exports(environment: Mapping[str, str]) -> list[str]:
    """``export NAME=value`` lines."""
    return [f"export {name}={quoted(value)}" for name, value in environment.items()]


def array(name: str, words: Iterable[str]) -> list[str]:
    """A bash array, a flag with its values on each line."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not lines:
            lines.append([])
        lines[-1].append(quoted(word))
    return [f"{name}=(", *(_INDENT + " ".join(line) for line in lines), ")"]


def plain_name(name: str, otherwise: str = "train") -> str:
    """A name that every scheduler takes: letters, digits, dots, dashes."""
    return _PLAIN.sub("-", name).strip("-._")[:_LONGEST_NAME] or otherwise


def comment(text: str) -> str:
    """Text that can stand behind a # on one line, whatever is in it."""
    return " ".join(text.split())


def torchrun(program: Program, *, nodes: str, per_node: int, rank: str, rendezvous: str) -> list[str]:
    """The lines of a command that starts the program on one node of several.

    Args:
        nodes, rank, rendezvous: shell expressions, put in as they are (``"$SLURM_NNODES"``); ours, never a user's.
    """
    script = quoted(program.script)
    if program.launcher == "python":
        return [f"python -u {script} \\", f'{_INDENT}"${{ARGS[@]}}" "$@"']
    return [
        "torchrun \\",
        f"{_INDENT}--nnodes {nodes} --nproc-per-node {per_node} --node-rank {rank} \\",
        f"{_INDENT}--rdzv-backend c10d --rdzv-endpoint {rendezvous} \\",
        f'{_INDENT}{script} "${{ARGS[@]}}" "$@"',
    ]
