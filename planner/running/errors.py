"""How a job can end other than with a result, and the problem object (RFC 9457) that each end is stored as."""

from __future__ import annotations

from math import isfinite
from typing import Any

from costmodel.errors import InvalidInput, PlannerError, UnknownName

Json = dict[str, Any]


class JobFailed(PlannerError):
    """A job that ended without a result, and would again.

    Attributes:
        problem: what to tell whoever asked.
        trace: the worker's traceback, for the log; empty when there is none.
    """

    def __init__(self, problem: Json, trace: str = "") -> None:
        self.problem = problem
        self.trace = trace
        super().__init__(str(problem["detail"]))


class JobStopped(PlannerError):
    """A job that was told to stop, and did or was made to."""


class WorkersUnavailable(PlannerError):
    """No worker process can be had: none starts, or the pool is closed."""


def failure(slug: str, detail: str) -> Json:
    """The problem object of a search that failed for a reason that is not the user's."""
    return {"type": slug, "title": "The search failed", "detail": " ".join(detail.split())}


def problem_of(error: PlannerError) -> Json:
    """The problem object of an error that was raised on purpose."""
    if not isinstance(error, InvalidInput):
        return failure("search-failed", str(error))
    problem = {
        "type": error.slug,
        "title": "Bad input",
        "detail": " ".join(str(error).split()),
        "field": error.field,
        "value": _as_json(error.value),
        "expected": error.expected,
    }
    return problem | {"nearest": list(error.nearest)} if isinstance(error, UnknownName) else problem


def _as_json(value: Any) -> Any:
    """The value where JSON has it; its text otherwise (NaN, a tuple of paths, ...)."""
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | bool | int) else str(value)
