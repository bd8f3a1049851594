"""The form to ask: its fields, what was typed, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import ValidationError

from api.problems import ProblemRaised, pointer_of
from api.schemas.requests import LLAMA, SearchBody
from costmodel.catalog.cluster_catalog import cluster_names
from costmodel.catalog.framework_catalog import framework_names
from costmodel.catalog.model_catalog import model_names
from costmodel.errors import InvalidInput

_MOST_BYTES = 65_536
_MOST_FIELDS = 64
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_BESIDE_A_SIGN = re.compile(r"[ \t]*([=,])[ \t]*")

Kind = Literal["text", "whole", "number", "lines", "choice"]


@dataclass(frozen=True, kw_only=True)
class Field:
    """An input: ``name`` is the API's, ``hint`` explains it, ``unit`` stands behind the label.

    Attributes:
        offers: names of the catalog to choose from or, of a choice, value and words of each.
        wide: takes the room of two.
    """

    name: str
    label: str
    hint: str
    kind: Kind = "text"
    unit: str = ""
    offers: tuple[tuple[str, str], ...] = ()
    wide: bool = False

    @property
    def required(self) -> bool:
        """Whether a question is none without it."""
        return SearchBody.model_fields[self.name].is_required()


@dataclass(frozen=True, kw_only=True)
class Form:
    """What stands in the form, and the errors: by field, and under "" what belongs to none."""

    typed: Mapping[str, str]
    errors: Mapping[str, str] = field(default_factory=dict)


def fields() -> tuple[Field, ...]:
    """The fields in their order. Names are read anew each time, since a user may add some."""
    return (
        Field(name="model", label="Model", hint="A name of the catalog.", offers=_named(model_names())),
        Field(name="cluster", label="Cluster", hint="A name of the catalog.", offers=_named(cluster_names())),
        Field(name="devices", label="Devices", hint="Accelerators at hand.", kind="whole"),
        Field(
            name="global_batch_size",
            label="Global batch",
            unit="sequences",
            hint="Per optimizer step, over all devices.",
            kind="whole",
        ),
        Field(name="seq_len", label="Sequence length", unit="tokens", hint="Tokens per sequence.", kind="whole"),
        Field(name="precision", label="Precision", hint="A recipe: bf16, fp16, fp8 or fp32."),
        Field(
            name="framework",
            label="Framework",
            hint="Whose rules a plan has to keep.",
            kind="choice",
            offers=_named(framework_names()),
        ),
        Field(
            name="objective",
            label="Objective",
            hint="What the best plan has least of.",
            kind="choice",
            offers=(
                ("step_time", "Time of a step"),
                ("cost", "Cost of a step"),
                ("fewest_devices", "Devices used"),
            ),
        ),
        Field(
            name="price_per_device_hour",
            label="Price",
            unit="per device and hour",
            hint="For the cost only; if empty, the cluster's.",
            kind="number",
        ),
        Field(name="top", label="Plans to list", hint="At most so many, best first.", kind="whole"),
        Field(
            name="pins",
            label="Pins",
            hint="Values that an axis may have: tp=8 pp=4,8,16 dp=4..",
            kind="lines",
            wide=True,
        ),
        Field(
            name="forbids",
            label="Forbids",
            hint="Values that it must not have: recompute=full tp=1",
            kind="lines",
            wide=True,
        ),
        Field(
            name="max_seconds",
            label="Deadline",
            unit="s",
            hint="Then the best so far is the answer.",
            kind="number",
        ),
    )


def empty_form() -> Form:
    """The form before anything was typed: an example to start from, and the API's defaults."""
    typed: dict[str, str] = {}
    for shown in fields():
        value = LLAMA[shown.name] if shown.required else SearchBody.model_fields[shown.name].default
        typed[shown.name] = f"{value:g}" if isinstance(value, float) else str(value or "")
    return Form(typed=typed)


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
    """The body that the API would be sent, or None and the form with its errors; what is left empty has its default."""
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for shown in fields():
        text = typed.get(shown.name, "").strip()
        try:
            if text:
                values[shown.name] = _value(shown.kind, text)
        except ValueError as error:
            errors[shown.name] = str(error)
            values[shown.name] = None
        if shown.required and not text:
            errors[shown.name] = "it is needed"
    try:
        body = SearchBody.model_validate(values)
    except ValidationError as error:
        for found in error.errors():
            message = str(found["msg"]).removeprefix("Value error, ").removeprefix("Input ")
            errors.setdefault(str(found["loc"][0]), message)
        body = None
    return (None if errors else body), Form(typed=typed, errors=errors)


def with_error(form: Form, error: InvalidInput) -> Form:
    """The form with what the planner says of one field."""
    name = pointer_of(error.field).split("/")[1]
    known = {shown.name for shown in fields()}
    if name in known:
        return Form(typed=form.typed, errors={**form.errors, name: str(error).partition(": ")[2]})
    return Form(typed=form.typed, errors={**form.errors, "": str(error)})


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
    return _BESIDE_A_SIGN.sub(r"\1", text).split() if kind == "lines" else text


def _named(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)
