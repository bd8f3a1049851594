"""A plan as people write it by hand: any of its fields, which need not agree with each other.

``Plan`` refuses what contradicts itself. A draft may: whether a plan is legal is an answer, not an error of its file.
Only what can't be understood at all is one: no such field, no such type, no such word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from costmodel.errors import InvalidInput
from costmodel.spec.base import Frozen, Name, NonNegativeInt, PositiveInt
from costmodel.spec.options import BY_NAME, AnyOf
from costmodel.spec.plan import (
    CapacityFactor,
    CpCommType,
    GradientSync,
    MoeDispatcher,
    Offload,
    Recompute,
    ReshardAfter,
    Schedule,
    ZeroPlus,
)
from costmodel.spec.validation import problems_of

# Far beyond the layers of any model. A file of millions of entries is refused before it is looked at.
_MOST_ENTRIES = 10_000
_MOST_BITS = 64
_LONGEST_NAME = 60
_MOST_TOLD = 12

Layers = Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]


class PlanDraft(Frozen):
    """The fields of ``Plan``, each of which may be left out."""

    tp: PositiveInt | None = None
    pp: PositiveInt | None = None
    vpp: PositiveInt | None = None
    cp: PositiveInt | None = None
    cp_comm_type: CpCommType | None = None
    ep: PositiveInt | None = None
    etp: PositiveInt | None = None
    dp: PositiveInt | None = None
    dp_replicate: PositiveInt | None = None
    dp_shard: PositiveInt | None = None
    zero_stage: Annotated[int, Field(strict=True, ge=0, le=3)] | None = None
    sequence_parallel: Annotated[bool, Field(strict=True)] | None = None
    micro_batch_size: PositiveInt | None = None
    num_microbatches: PositiveInt | None = None
    global_batch_size: PositiveInt | None = None
    seq_len: PositiveInt | None = None
    devices_used: PositiveInt | None = None
    schedule: Schedule | None = None
    layers_per_stage: Layers | None = None
    layers_per_chunk: Annotated[tuple[Layers, ...], Field(min_length=1)] | None = None
    recompute: Recompute | None = None
    recompute_modules: tuple[Name, ...] | None = None
    recomputed_layers_per_stage: Layers | None = None
    recompute_interval: PositiveInt | None = None
    offload: Offload | None = None
    reshard_after: ReshardAfter | None = None
    fsdp_prefetch: NonNegativeInt | None = None
    gradient_sync: GradientSync | None = None
    zero_plus: tuple[ZeroPlus, ...] | None = None
    tp_overlap: Annotated[bool, Field(strict=True)] | None = None
    cp_a2a_degree: PositiveInt | None = None
    cp_balanced: Annotated[bool, Field(strict=True)] | None = None
    moe_dispatcher: MoeDispatcher | None = None
    ep_overlap: Annotated[bool, Field(strict=True)] | None = None
    moe_capacity_factor: CapacityFactor | None = None
    precision: Name | None = None
    optimizer: Name | None = None
    gradient_dtype: Name | None = None
    framework: Name | None = None
    framework_version: Name | None = None


class InvalidPlan(InvalidInput):
    """A plan that can't be read; the message lists everything that is wrong with it.

    Attributes:
        problems: one error per field.
    """

    slug = "invalid-plan"

    def __init__(self, problems: list[InvalidInput]) -> None:
        first, *others = problems
        self.problems = tuple(problems)
        told = [f"{problem}" for problem in others[: _MOST_TOLD - 1]]
        if len(problems) > _MOST_TOLD:
            told.append(f"and {len(problems) - _MOST_TOLD} more problems")
        super().__init__(first.field, first.value, "; also ".join([first.expected, *told]))


def read_draft(data: Mapping[str, Any]) -> PlanDraft:
    """The draft that a plan file's mapping holds.

    Raises:
        InvalidPlan: fields that no plan has, or values that can't be those of their fields; all of them are named.
    """
    problems: list[InvalidInput] = []
    readable: dict[str, Any] = {}
    for name, value in data.items():
        problem = _oversized(name, value)
        if problem is None:
            readable[name] = value
        else:
            problems.append(problem)
    found = problems_of(PlanDraft, readable, "plan")
    if isinstance(found, PlanDraft) and not problems:
        return found
    raise InvalidPlan(problems + ([_told(one) for one in _innermost(found)] if isinstance(found, list) else []))


def _innermost(problems: list[InvalidInput]) -> list[InvalidInput]:
    """Without those of a list whose entries have problems of their own: an entry that is unusable leaves it short."""
    entries = tuple(problem.field for problem in problems)
    return [problem for problem in problems if not any(entry.startswith(f"{problem.field}[") for entry in entries)]


def _told(problem: InvalidInput) -> InvalidInput:
    """With the words of a list, where something else stands in its place: ``"qwz+qgz"``, as a flag would have it."""
    option = BY_NAME.get(problem.field.removeprefix("plan."))
    if not isinstance(option, AnyOf) or isinstance(problem.value, list):
        return problem
    named = str(problem.value).lower().replace(",", "+").replace(" ", "").split("+")
    if named == [option.nothing]:
        right: Sequence[str] = []
    else:
        right = named if set(named) <= set(option.words) else option.words[:2]
    expected = f"a list of any of {', '.join(option.words)} is expected, as in {json.dumps(right)}"
    return InvalidInput(problem.field, problem.value, expected)


def _oversized(name: Any, value: Any) -> InvalidInput | None:
    """What must not even reach a message: values without end, and names that are none."""
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        return InvalidInput("plan", f"{name!r:.{_LONGEST_NAME}}", "field names are short texts")
    field = f"plan.{name}"
    if isinstance(value, Mapping):
        return InvalidInput(field, "a mapping", "a plan is flat: a number, a word or a list of numbers is expected")
    entries = 0
    for outer in value if isinstance(value, list) else [value]:
        for inner in outer if isinstance(outer, list) else [outer]:
            entries += 1
            if entries > _MOST_ENTRIES:
                return InvalidInput(field, f"over {_MOST_ENTRIES} entries", "no model has so many layers")
            if isinstance(inner, list | Mapping):
                return InvalidInput(
                    field, "nested lists", "a list of numbers, or of one list for each device, is wanted"
                )
            if isinstance(inner, int) and inner.bit_length() > _MOST_BITS:
                return InvalidInput(field, f"a number of {inner.bit_length()} bits", "no plan has such numbers")
    return None
