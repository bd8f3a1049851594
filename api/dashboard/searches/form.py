"""The form to ask: what was typed, the question that it is, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from api.dashboard.searches.checks import field_of, refusals, said
from api.dashboard.searches.fields import NO, YES, Kind, fields
from api.problems import ProblemRaised
from api.schemas.requests import SearchBody
from api.validation import words
from costmodel.errors import InvalidInput

_MOST_BYTES = 65_536
_MOST_FIELDS = 64
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_BESIDE_A_SIGN = re.compile(r"[ \t]*([=,])[ \t]*")


@dataclass(frozen=True, kw_only=True)
class Form:
    """What stands in the form.

    Attributes:
        errors: by field, and under "" what belongs to none.
        notes: where it was filled from, and what to mind about that.
    """

    typed: Mapping[str, str]
    errors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def shows_rare(self) -> bool:
        """Whether what is folded away otherwise says something of its own."""
        rare = [shown for shown in fields() if shown.rare]
        return any(
            shown.name in self.errors or self.typed.get(shown.name, "") not in ("", shown.default) for shown in rare
        )

    def refusal(self, where: str) -> RequestValidationError:
        """Its errors as the API tells them; ``where`` is ``body`` or ``query``."""
        return RequestValidationError(
            [
                {"loc": (where, name), "msg": text, "type": "value_error"}
                for name, texts in self.errors.items()
                for text in texts
            ]
        )


def empty_form() -> Form:
    """The form before anything was typed: an example to start from, and the API's defaults."""
    return Form(typed={shown.name: shown.default for shown in fields()})


async def typed_in(request: Request) -> dict[str, str]:
    """The fields that a browser sent, as they were typed.

    Raises:
        ProblemRaised: it is no form, a too long one, or holds fields that the form does not have.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise ProblemRaised(415, "the form of /searches is expected; programs POST JSON to /v1/searches")
    body = await request.body()
    if len(body) > _MOST_BYTES:
        raise ProblemRaised(413, f"the form may have {_MOST_BYTES} bytes; programs POST JSON to /v1/searches")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise ProblemRaised(400, "the form can't be read") from None
    typed = {name: text.replace("\r\n", "\n") for name, text in pairs}
    unknown = sorted(typed.keys() - {shown.name for shown in fields()})
    if unknown:
        raise ProblemRaised(422, f"the form has no field {unknown[0][:80]!r}; programs POST JSON to /v1/searches")
    return typed


def question_of(typed: Mapping[str, str]) -> tuple[SearchBody | None, Form]:
    """The body that the API would be sent, or None and the form with all its errors.

    What is left empty has its default.
    """
    values: dict[str, Any] = {}
    errors: dict[str, tuple[str, ...]] = {}
    for shown in fields():
        text = typed.get(shown.name, "").strip()
        try:
            if text:
                values[shown.name] = _value(shown.kind, text)
        except ValueError as error:
            errors[shown.name] = (str(error),)
            values[shown.name] = None
        if shown.required and not text:
            errors[shown.name] = ("it is needed",)
    body = None
    try:
        body = SearchBody.model_validate(values)
    except ValidationError as error:
        for found in error.errors():
            errors.setdefault(str(found["loc"][0]), (words(found),))
    for name, refused in refusals(values, errors.copy()):
        errors[name] = (*errors.get(name, ()), said(refused))
    return (None if errors else body), Form(typed=typed, errors=errors)


def with_error(form: Form, error: InvalidInput) -> Form:
    """The form with what the planner says of one field."""
    name = field_of(error)
    if name in {shown.name for shown in fields()}:
        return replace(form, errors={**form.errors, name: (said(error),)})
    return replace(form, errors={**form.errors, "": (str(error),)})


def _value(kind: Kind, text: str) -> Any:
    if kind == "whole":
        if not _WHOLE.fullmatch(text):
            raise ValueError("a whole number in digits is expected")
        return int(text)
    if kind == "number":
        try:
            value = float(text)
        except ValueError:
            raise ValueError("a number is expected") from None
        if not isfinite(value):
            raise ValueError("a number is expected")
        return value
    if kind == "flag":
        if text not in (YES, NO):
            raise ValueError(f"{YES} or {NO} is expected")
        return text == YES
    return _BESIDE_A_SIGN.sub(r"\1", text).split() if kind == "lines" else text
