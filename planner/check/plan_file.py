"""Reads a plan from a file or stdin: a plan alone, an object that has one, or a whole answer of ``suggest``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.catalog.documents import MAX_BYTES, mapping_of, read_mapping
from costmodel.errors import InvalidInput, UnreadableFile

STDIN = "-"
_SHOWN = "stdin"


def read_plan(path: str) -> tuple[dict[str, Any], str | None]:
    """The mapping of a plan's fields, and which part of the file it is where that is not the whole of it.

    Raises:
        UnreadableFile: no such file, or neither JSON nor YAML.
        InvalidInput: it holds no plan.
    """
    return plan_in(_read_stdin() if path == STDIN else read_mapping(Path(path), "plan"))


def plan_in(document: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The plan's fields in a document that was read already, and which part of it they are.

    Raises:
        InvalidInput: it holds no plan.
    """
    if "plans" in document:
        return _first_of(document)
    if "plan" in document:
        return _checked(document["plan"], "plan"), "the object under 'plan'"
    return document, None


def _read_stdin() -> dict[str, Any]:
    if sys.stdin is None:
        raise UnreadableFile("plan", _SHOWN, "it is closed")
    try:
        # One byte more than a document may have tells one that is too large.
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UnreadableFile("plan", _SHOWN, f"it can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UnreadableFile("plan", _SHOWN, f"UTF-8 text is expected (byte {error.start} isn't)") from None
    if len(content) > MAX_BYTES:
        raise UnreadableFile("plan", _SHOWN, f"it is larger than {MAX_BYTES // 2**20} MiB, too large for a plan")
    return mapping_of(text, is_json=text.lstrip().startswith("{"), shown=_SHOWN, field="plan")


def _first_of(answer: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    plans = answer["plans"]
    if not isinstance(plans, list) or not plans:
        raise UnreadableFile("plan", "plans", "an answer with at least one plan is expected")
    first = plans[0]
    if isinstance(first, Mapping) and "plan" in first:
        first = first["plan"]
    return _checked(first, "plans[0].plan"), f"plans[0] of {len(plans)}"


def _checked(found: Any, where: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise InvalidInput(where, f"a {type(found).__name__}", "a mapping of field to value is expected")
    return found
