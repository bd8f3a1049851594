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
    return plan_in(read_document(path))


def read_document(path: str) -> dict[str, Any]:
    """The whole mapping that a file, or stdin, holds.

    Raises:
        UnreadableFile: no such file, or neither JSON nor YAML.
    """
    return _document_of_stdin() if path == STDIN else read_mapping(Path(path), "plan")


def plan_in(document: dict[str, Any], rank: int = 1) -> tuple[dict[str, Any], str | None]:
    """The plan's fields in a document that was read already, and which part of it they are.

    Args:
        rank: which plan of an answer that has several, from 1.

    Raises:
        InvalidInput: it holds no plan, or none of that rank.
    """
    if "plans" in document:
        return _ranked(document, rank)
    if rank != 1:
        raise InvalidInput("rank", rank, "the file holds one plan: only answers of suggest have ranks")
    if "plan" in document:
        return _checked(document["plan"], "plan"), "the object under 'plan'"
    return document, None


def _document_of_stdin() -> dict[str, Any]:
    text = read_stdin()
    return mapping_of(text, is_json=text.lstrip().startswith("{"), shown=_SHOWN, field="plan")


def read_stdin() -> str:
    """The text on stdin.

    Raises:
        UnreadableFile: it is closed, unreadable, no UTF-8, or too large for a plan.
    """
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
    return text


def _ranked(answer: Mapping[str, Any], rank: int) -> tuple[dict[str, Any], str]:
    plans = answer["plans"]
    if not isinstance(plans, list) or not plans:
        raise UnreadableFile("plan", "plans", "an answer with at least one plan is expected")
    if not 1 <= rank <= len(plans):
        raise InvalidInput("rank", rank, f"1 to {len(plans)} are expected, as the answer has plans")
    found = plans[rank - 1]
    if isinstance(found, Mapping) and "plan" in found:
        found = found["plan"]
    where = f"plans[{rank - 1}]"
    return _checked(found, f"{where}.plan"), f"{where} of {len(plans)}"


def _checked(found: Any, where: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise InvalidInput(where, f"a {type(found).__name__}", "a mapping of field to value is expected")
    return found
