"""What is asked at every device count: the form's fields from a query string, and the counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from api.dashboard.searches.checks import said
from api.dashboard.searches.fields import Field, fields
from api.dashboard.searches.form import Form, empty_form, question_of
from api.dashboard.searches.objective_columns import OBJECTIVES
from api.dashboard.words import number
from api.schemas.requests import SearchBody
from costmodel.catalog.framework_catalog import load_framework
from costmodel.errors import InvalidInput
from planner.counts import values_of

MOST_COUNTS = 64
EXAMPLE = "64..1024"

_DEVICES = "devices"
_HINT = f"8..512 doubles, 8..64:8 goes in steps of 8, 8,16,61 lists them; at most {MOST_COUNTS}."
# One plan per count is shown; but how many were asked for is part of the question, so it stays, folded away.
_RARE_HERE = frozenset({"top", "max_seconds"})


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A question at each of some device counts, ascending."""

    body: SearchBody
    counts: tuple[int, ...]

    def bodies(self) -> list[SearchBody]:
        """The question at each count."""
        return [self.body.model_copy(update={_DEVICES: count}) for count in self.counts]


def scaling_fields() -> tuple[Field, ...]:
    """The fields of the form to ask, with counts in place of devices."""
    return tuple(
        replace(field, label="Device counts", kind="text", hint=_HINT)
        if field.name == _DEVICES
        else replace(field, rare=True)
        if field.name in _RARE_HERE
        else field
        for field in fields()
    )


def first_form() -> Form:
    """The form before anything was asked: an example."""
    form = empty_form()
    return replace(form, typed={**form.typed, _DEVICES: EXAMPLE})


def curve_of(typed: Mapping[str, str]) -> tuple[Curve | None, Form]:
    """What is asked, or None and the form with all its errors.

    Counts that a cluster can't have are points of the curve, unless it can have none of them.
    """
    # What an address leaves out has its default, and the form says so.
    typed = {field.name: field.default for field in fields() if not field.required} | dict(typed)
    text = typed.get(_DEVICES, "").strip()
    try:
        counts = values_of(_DEVICES, text, MOST_COUNTS) if text else ()
    except InvalidInput as error:
        _, form = question_of({**typed, _DEVICES: "1"})
        return None, replace(form, typed=typed, errors={**form.errors, _DEVICES: (said(error),)})
    body, form = None, Form(typed=typed)
    for count in counts or ("",):
        body, form = question_of({**typed, _DEVICES: str(count)})
        if _DEVICES not in form.errors:
            break
    form = replace(form, typed=typed)
    return (None if body is None else Curve(body=body, counts=counts)), form


def question_in_words(shown: Sequence[Field], form: Form) -> list[tuple[str, str]]:
    """Label and value of each field that says something of its own, and of those that every question has."""
    found: list[tuple[str, str]] = []
    for field in shown:
        text = " ".join(form.typed.get(field.name, "").split()) or ("" if field.required else field.default)
        if text and (not field.rare or text != field.default):
            found.append((field.label, f"{_in_words(field, text)} {field.unit}".strip()))
    return found


def _in_words(field: Field, text: str) -> str:
    """As the page of a search has it: thousands set apart, and what a choice means."""
    if field.name == "framework":
        return _title_of(text)
    if field.name == "objective":
        return OBJECTIVES.get(text, text)
    return number(int(text)) if field.kind == "whole" and text.isdecimal() else text


def _title_of(framework: str) -> str:
    try:
        return load_framework(framework).title
    except InvalidInput:
        return framework
