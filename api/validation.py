"""What is wrong with a request's fields, and where: errors of FastAPI and Pydantic in our words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.schemas.text import GIVEN_AS

_MOMENT = "a moment such as 2026-11-29T12:00:00Z is expected"
_WHOLE = "a whole number is expected"
_NUMBER = "a number is expected"
_TEXT = "text is expected"
_OBJECT = "a JSON object is expected"
_WORDS = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such field",
    "model_attributes_type": _OBJECT,
    "model_type": _OBJECT,
    "dict_type": _OBJECT,
    "list_type": "a list is expected",
    "string_type": _TEXT,
    "string_unicode": "it must not hold half a surrogate pair",
    "string_pattern_mismatch": "it must match {pattern}",
    "string_too_short": "it must have at least {min_length} characters",
    "string_too_long": "it must have at most {max_length} characters",
    "too_short": "it must have at least {min_length} items",
    "too_long": "it must have at most {max_length} items",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "a finite number is expected",
    "greater_than": "it must be more than {gt:g}",
    "greater_than_equal": "it must be at least {ge}",
    "less_than": "it must be less than {lt:g}",
    "less_than_equal": "it must be at most {le}",
    "literal_error": "{expected} is expected",
    "timezone_aware": "it must say its time zone",
    "datetime_type": _MOMENT,
    "datetime_parsing": _MOMENT,
    "datetime_from_date_parsing": _MOMENT,
    "datetime_object_invalid": _MOMENT,
}


def field_errors(errors: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """``pointer`` and ``detail`` of each; the pointer of a parameter or header is its name."""
    found: list[dict[str, str]] = []
    for error in errors:
        where, *path = (str(part) for part in error["loc"])
        inside = _without_kinds(path)
        found.append({"pointer": json_pointer(inside) if where == "body" else ".".join(inside), "detail": words(error)})
    return found


def words(error: Mapping[str, Any]) -> str:
    """What is wrong, for one of Pydantic's errors."""
    known = _WORDS.get(error["type"])
    if known is None:
        return " ".join(str(error["msg"]).removeprefix("Value error, ").split())
    return known.format(**error.get("ctx", {}))


def json_pointer(parts: Iterable[str]) -> str:
    """RFC 6901."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def parts_of(field: str) -> list[str]:
    """``cluster.tiers[0].kind`` or ``global-batch-size`` as a path in the body."""
    return name_in_body(field).replace("[", ".").replace("]", "").split(" ")[0].split(".")


def name_in_body(field: str) -> str:
    """A field as the body calls it: ``gradient-dtype`` is ``gradient_dtype`` there, and ``pin offload`` is ``pins``.

    Only flags are called otherwise; what lies deeper is called as it was sent.
    """
    first = re.split(r"[.\[ ]", field, maxsplit=1)[0]
    return {"pin": "pins", "forbid": "forbids"}.get(first) or first.replace("-", "_") + field[len(first) :]


def within(sent: Any, path: Sequence[str]) -> list[str]:
    """As much of a path as there is in what was sent; a field of the body itself may also be one that is missing."""
    kept: list[str] = []
    for part in path:
        if isinstance(sent, dict) and part in sent:
            sent = sent[part]
        elif isinstance(sent, list) and part.isdecimal() and int(part) < len(sent):
            sent = sent[int(part)]
        else:
            return kept or list(path[:1])
        kept.append(part)
    return kept


def _without_kinds(path: Sequence[str]) -> list[str]:
    """A place in the body; the kind that was chosen for a value that may be a name or an object is no part of it."""
    return [
        part
        for before, part in zip(("", *path), path, strict=False)
        if not (before in ("model", "cluster") and part in GIVEN_AS)
    ]
