"""A plan that somebody has already, made whole under its scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costmodel.catalog.framework_catalog import load_framework
from costmodel.errors import InvalidInput, UnknownName
from costmodel.scenario import Scenario
from costmodel.spec.plan_draft import PlanDraft, read_draft
from planner.check.complete import Completion, complete
from planner.check.question import CheckQuestion, scenario_question, with_catalog_names
from planner.question import Question
from planner.resolving import request_of
from planner.search.request import SearchRequest

_NAMES = ("precision", "optimizer", "gradient_dtype", "framework", "framework_version")


@dataclass(frozen=True, kw_only=True)
class Given:
    """A plan as it was given, the search that has the same scenario, and the whole plan, legal or not."""

    draft: PlanDraft
    request: SearchRequest
    completion: Completion

    @property
    def scenario(self) -> Scenario:
        return self.request.scenario


def given_plan(asked: CheckQuestion, data: Mapping[str, Any]) -> Given:
    """The plan whose fields ``data`` holds, whatever ``asked.plan`` says.

    Raises:
        InvalidInput: a field or a flag is unusable.
    """
    draft = with_catalog_names(read_draft(data))
    question, origins = scenario_question(asked, draft)
    request = _request_of(question, asked, draft)
    return Given(draft=draft, request=request, completion=complete(draft, request.scenario, origins))


def _request_of(question: Question, asked: CheckQuestion, draft: PlanDraft) -> SearchRequest:
    """The request; a name that is not known, or that the device or the framework lacks, is told where it stands."""
    try:
        return request_of(question)
    except InvalidInput as error:
        field = error.field.replace("-", "_")
        in_plan = field in _NAMES and getattr(asked, field) is None and getattr(draft, field) is not None
        expected = error.expected
        if isinstance(error, UnknownName) and field == "framework_version":
            expected = f"known are {', '.join(load_framework(question.framework).versions)}"
        elif not in_plan:
            raise
        raise InvalidInput(f"plan.{field}" if in_plan else error.field, error.value, expected) from None
