"""Exit codes, and how an error is told: one line for people, a problem object (RFC 9457) for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum
from math import isfinite
from typing import Any

from costmodel.errors import InvalidInput

_PROBLEMS_TOLD = 3


class Exit(IntEnum):
    """What the exit code of a command means."""

    ANSWERED = 0
    BAD_INPUT = 2
    INFEASIBLE = 3
    CUT_SHORT = 4
    FAILED = 5


def exit_of(answer: Mapping[str, Any]) -> Exit:
    """The exit code of an answer: a list that the deadline cut counts as cut, also when its head is proven."""
    if answer["status"] == "infeasible":
        return Exit.INFEASIBLE
    return Exit.ANSWERED if answer["proven_top_k"] else Exit.CUT_SHORT


def tell(line: str) -> None:
    """One line on stderr."""
    if sys.stderr is not None:
        sys.stderr.write(" ".join(line.split()) + "\n")


def tell_problems(problems: Sequence[str], about: str = "") -> None:
    """The first of what is wrong with rows of a file, a line each, and how many more there are."""
    for told in problems[:_PROBLEMS_TOLD]:
        tell(f"planner: warning: {about}{told}")
    if len(problems) > _PROBLEMS_TOLD:
        tell(f"planner: warning: {about}{len(problems) - _PROBLEMS_TOLD} more problems, see --json")


def problem(slug: str, title: str, detail: str, **more: Any) -> str:
    """A problem object as JSON."""
    fields = {name: str(value) if _not_json(value) else value for name, value in more.items()}
    return json.dumps({"type": slug, "title": title, "detail": " ".join(detail.split()), **fields}, default=str)


def _not_json(value: Any) -> bool:
    """NaN and the infinities have no JSON."""
    return isinstance(value, float) and not isfinite(value)


def tell_invalid(error: InvalidInput, *, as_json: bool) -> Exit:
    """Report bad input."""
    more: dict[str, Any] = {"field": error.field, "value": error.value, "expected": error.expected} | error.members
    _report(problem(error.slug, "Bad input", str(error), **more), str(error), as_json=as_json)
    return Exit.BAD_INPUT


def tell_usage(message: str, *, as_json: bool) -> Exit:
    """Report a command line that can't be read."""
    _report(problem("bad-usage", "Bad input", message), f"{message} (see planner --help)", as_json=as_json)
    return Exit.BAD_INPUT


def tell_failure(message: str, *, as_json: bool) -> Exit:
    """Report what is neither the user's fault nor an answer."""
    _report(problem("failed", "The planner failed", message), message, as_json=as_json)
    return Exit.FAILED


def _report(problem_object: str, line: str, *, as_json: bool) -> None:
    """The problem object on stdout for programs, one line on stderr for people."""
    if as_json:
        sys.stdout.write(problem_object + "\n")
    else:
        tell(f"planner: {line}")
