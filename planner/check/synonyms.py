"""Fields that say nothing beside the others, in the one way in which this planner lists such plans.

No framework looks at them there: how context parallelism exchanges with a degree of 1, the schedule of a pipeline of
one stage, how experts are cut that a model doesn't have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costmodel.scenario import Scenario
from costmodel.spec.plan_draft import PlanDraft


@dataclass(frozen=True, kw_only=True)
class Normalised:
    """A field of the draft that was read otherwise than written, because what it says means nothing there."""

    field: str
    given: Any
    value: Any
    why: str


def normalised(draft: PlanDraft, scenario: Scenario) -> tuple[PlanDraft, tuple[Normalised, ...]]:
    """The draft in the usual spelling, and what was changed for that."""
    stages = draft.layers_per_stage or draft.layers_per_chunk or ()
    one_stage = draft.pp == 1 or (draft.pp is None and len(stages) <= 1)
    found: list[Normalised] = []

    def means_nothing(when: bool, field: str, value: Any, why: str) -> None:
        given = getattr(draft, field)
        if when and given is not None and given != value:
            found.append(Normalised(field=field, given=given, value=value, why=why))

    means_nothing(draft.cp in (None, 1), "cp_comm_type", "p2p", "cp is 1: nothing is exchanged")
    means_nothing(one_stage, "schedule", "1f1b", "pp is 1: nothing is scheduled")
    dense = scenario.model.moe is None
    means_nothing(dense and draft.etp == draft.tp, "etp", 1, "the model has no experts to cut")
    return draft.model_copy(update={entry.field: entry.value for entry in found}), tuple(found)
