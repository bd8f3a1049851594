"""From untyped data (JSON, YAML, a request's body) to a noun, with one-line errors a user can act on.

Pydantic's own ValidationError spans several lines and names the class rather than the user's field, so every
importer builds its nouns through ``build``. Validators of several fields raise ``Unusable`` to say which one is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from costmodel.errors import InvalidInput

T = TypeVar("T", bound=BaseModel)

# Pydantic's words, replaced where a user of a config file would say it otherwise; the rest keep pydantic's message.
_EXPECTED = {
    "missing": "it is required",
    "int_type": "a whole number is expected",
    "int_from_float": "a whole number is expected",
    "int_parsing": "a whole number is expected",
    "float_type": "a number is expected",
    "float_parsing": "a number is expected",
    "finite_number": "a finite number is expected",
    "bool_type": "true or false is expected",
    "bool_parsing": "true or false is expected",
    "string_type": "text is expected",
    "string_too_short": "it must not be empty",
    "literal_error": "it has to be {expected}",
    "tuple_type": "a list is expected",
    "list_type": "a list is expected",
    "too_short": "a list with at least {min_length} {entries} is expected",
    "greater_than_equal": "it has to be at least {ge}",
    "greater_than": "it has to be more than {gt}",
    "less_than_equal": "it has to be at most {le}",
    "less_than": "it has to be less than {lt}",
    "model_type": "a mapping of field to value is expected",
}


class Unusable(ValueError):
    """Raised inside a model's validator when one field contradicts another.

    Attributes:
        field: the field to change.
        value: what it holds.
        expected: what would be right, in words.
    """

    def __init__(self, field: str, value: Any, expected: str) -> None:
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(f"{field}: {value!r} is not usable; {expected}")


def build(cls: type[T], data: Mapping[str, Any], where: str) -> T:
    """An instance of ``cls`` from ``data``; every problem is an InvalidInput whose field is ``where.field``."""
    found = problems_of(cls, data, where)
    if not isinstance(found, list):
        return found
    first, others = found[0], len(found) - 1
    more = f" ({others} more {'problem' if others == 1 else 'problems'} after it)" if others else ""
    raise InvalidInput(first.field, first.value, first.expected + more)


def problems_of(cls: type[T], data: Mapping[str, Any], where: str) -> T | list[InvalidInput]:
    """An instance of ``cls`` from ``data``, or everything that is wrong with it, in the order of its fields."""
    if not isinstance(data, Mapping):
        return [InvalidInput(where, data, "a mapping of field to value is expected")]
    try:
        return cls.model_validate(dict(data))
    except ValidationError as error:
        return [_problem(details, cls, where) for details in error.errors(include_url=False)]


def together(problems: Sequence[InvalidInput]) -> InvalidInput:
    """One error in one line that names every problem, led by the first."""
    first = problems[0]
    others = "".join(f"; also {problem}" for problem in problems[1:])
    return InvalidInput(first.field, first.value, first.expected + others)


def _problem(details: ErrorDetails, cls: type[BaseModel], where: str) -> InvalidInput:
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, Unusable):
        return InvalidInput(_path(where, (*details["loc"], cause.field)), cause.value, cause.expected)
    # For a missing field pydantic reports its parent as the input; the field itself holds nothing.
    value = None if details["type"] == "missing" else details["input"]
    return InvalidInput(_path(where, details["loc"]), value, _expected(details, cls))


def _expected(problem: ErrorDetails, cls: type[BaseModel]) -> str:
    kind = problem["type"]
    if kind == "extra_forbidden":
        # Names are known for the outermost model only; a nested one gets no suggestion rather than a wrong one.
        known = cls.model_fields if len(problem["loc"]) == 1 else ()
        return "no such field" + _nearest(str(problem["loc"][-1]), known)
    if kind == "value_error":
        return problem["msg"].removeprefix("Value error, ")
    words = _EXPECTED.get(kind)
    if words is None:
        return " ".join(problem["msg"].split())
    given = problem.get("ctx", {})
    return words.format(**given, entries="entry" if given.get("min_length") == 1 else "entries")


def _nearest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _path(where: str, loc: tuple[int | str, ...]) -> str:
    """``tiers[1].bandwidth`` under ``cluster`` reads ``cluster.tiers[1].bandwidth``."""
    path = where
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path
