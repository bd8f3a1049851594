"""What all answers share, and the problem that stands for an error."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

Absent: TypeAlias = SkipJsonSchema[None]
"""For fields that are left out rather than null: their schema does not allow null."""

Next = Annotated[str | None, Field(description="The `cursor` of the next page; null at the end.")]
CostModel = Annotated[
    str,
    Field(description="Version of the cost model: a release, a digest of its source.", examples=["0.1.0+3eac9442"]),
]


class Answer(BaseModel):
    """Any answer. What is written below a field is its description in the OpenAPI document."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class ProblemError(Answer):
    """One field that is wrong."""

    pointer: str
    """JSON Pointer (RFC 6901) into the body, empty for all of it; or the name of a parameter or header."""
    detail: str
    """What is wrong with it, or what would be right."""


class Refusal(Answer):
    """Something of a plan that a target has no words for."""

    field: str
    """Of the plan; `model.` and a field of the model."""
    value: Any
    why: str


class Problem(Answer):
    """RFC 9457: what went wrong, for programs by ``type``, for people by ``detail``."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(examples=["unknown-name"])]
    """A slug that stays the same; there may be more of them one day, so fall back on the status."""
    title: str
    """The kind of problem, in words."""
    status: int
    """The HTTP status; 422 for one item of a batch."""
    detail: str
    """What went wrong this time; not to be parsed."""
    request_id: str | Absent = None
    """The `X-Request-Id` of the response, under which the server's log has more."""
    errors: list[ProblemError] | Absent = None
    """Every field that is wrong."""
    field: str | Absent = None
    """The first of them, by its name in the body: `gradient_dtype`, `pins[0]`, `cluster.tiers[0].kind`."""
    value: Annotated[Any, Field(description="What was found there.")] = None
    expected: str | Absent = None
    """What would be right, in words."""
    nearest: list[str] | Absent = None
    """Known names that may be meant."""
    refusals: list[Refusal] | Absent = None
    """Of an export: what the target can't say of the plan."""
