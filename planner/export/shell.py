"""Words for a shell: every word that comes from a plan, a model or a user is quoted where it needs to be."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from planner.export.launch import Program

_INDENT = "    "
# Characters that schedulers allow in names of jobs; everything else becomes a dash, and marks don't stand side by side.
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_MARKS = re.compile(r"[._-]{2,}")
_LONGEST_NAME = 60
# Torchrun puts the local rank for this name into the words that it passes on, and reads $$ as a dollar.
_REPLACED = re.compile(r"\$(?=\$|local_rank(?![A-Za-z0-9_])|\{local_rank\})")


def quoted(word: object) -> str:
    """The word as a shell reads it back."""
    return shlex.quote(str(word))


def exports(environment: Mapping[str, str]) -> list[str]:
    """``export NAME=value`` lines."""
    return [f"export {name}={quoted(value)}" for name, value in environment.items()]


def rows(words: Iterable[str]) -> list[list[str]]:
    """The words by lines: a flag with its values on each, any other word alone."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not lines or not lines[-1][0].startswith("--"):
            lines.append([])
        lines[-1].append(word)
    return lines


def array(name: str, words: Iterable[str]) -> list[str]:
    """The lines of a bash array."""
    return [f"{name}=(", *(_INDENT + " ".join(map(quoted, line)) for line in rows(words)), ")"]


def plain_name(name: str, otherwise: str = "train") -> str:
    """A name that every scheduler takes: letters, digits, dots, dashes."""
    return _MARKS.sub("-", _PLAIN.sub("-", name)).strip("-._")[:_LONGEST_NAME].rstrip("-._") or otherwise


def comment(text: str) -> str:
    """Text that can stand behind a # on one line, whatever is in it."""
    return " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())


def words_of(program: Program) -> list[str]:
    """The script and its arguments, unquoted, as the launcher has to be told them for the script to get them.

    Torchrun replaces in them (torch 2.13, distributed/elastic/utils/api.py, macros).
    """
    words = [program.script, *program.arguments]
    return [_REPLACED.sub("$$", word) for word in words] if program.launcher == "torchrun" else words


def launcher(program: Program, *, nodes: str, per_node: int, rank: str, address: str, port: str) -> list[str]:
    """The words that start a node's part of the program, up to its script.

    Nodes meet at a place that is said beforehand, and their ranks are those of the scheduler: torchrun's ``static``
    rendezvous. Its ``c10d`` sorts nodes by the text of their names instead (node10 before node9) and does not look at
    ``--node-rank`` (torch 2.13, distributed/elastic/rendezvous/dynamic_rendezvous.py:833, distributed/run.py:860),
    which tears apart groups of neighbours that the plan relies on. What ``c10d`` has more, restarts in place and nodes
    that come and go, is nothing to a plan: it is for so many devices, its whole job is started again by the scheduler,
    and with fewer nodes there is a better plan.

    ``python`` is one process for each node, which finds the others by the variables that MaxText reads
    (utils/max_utils.py, initialize_jax_for_gpu).

    Args:
        nodes, rank, address, port: shell expressions, put in as they are (``"$SLURM_NNODES"``); ours, never a user's.
    """
    if program.launcher == "python":
        meeting = f"JAX_COORDINATOR_IP={address} JAX_COORDINATOR_PORT={port} NNODES={nodes} NODE_RANK={rank}"
        return ["env", meeting, "python", "-u", *(["-m"] if program.module else [])]
    return [
        "torchrun",
        f"--nnodes {nodes} --nproc-per-node {per_node} --node-rank {rank}",
        f"--rdzv-backend static --rdzv-endpoint {address}:{port}",
        *(["-m"] if program.module else []),
    ]


def command(words: Iterable[str]) -> list[str]:
    """One command over several lines, a word or a few of them on each."""
    first, *rest = words
    lines = [first, *(_INDENT + word for word in rest)]
    return [*(line + " \\" for line in lines[:-1]), lines[-1]]


def torchrun(program: Program, *, nodes: str, per_node: int, rank: str, address: str, port: str) -> list[str]:
    """The lines of a command that starts the program on one node of several; its arguments are in ``ARGS``.

    Args: as for ``launcher``.
    """
    start = launcher(program, nodes=nodes, per_node=per_node, rank=rank, address=address, port=port)
    return command([*start, quoted(words_of(program)[0]), '"${ARGS[@]}" "$@"'])
