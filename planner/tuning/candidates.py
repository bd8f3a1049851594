"""The plans that a study may run: the search's best different ones, and variants of the most promising of them.

A study keeps its candidates from its first moment on, so all its workers mean the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from costmodel.errors import InvalidInput
from costmodel.spec.options import BY_NAME
from costmodel.spec.plan import RECOMPUTES, SCHEDULES
from costmodel.spec.plan_draft import read_draft
from planner.answering.whole_answer import whole_answer
from planner.check.complete import complete
from planner.check.judge import judge
from planner.check.price import price, row_of_plan
from planner.search.allowed import ALLOWABLE
from planner.search.request import SearchRequest

Json = dict[str, Any]
Origin = Literal["shortlist", "search", "variant"]

SEARCHED = 100
"""Different plans of the search that a study starts from."""
_VARIED = 12
"""Of how many of them, from the best on, variants are made."""
_PROBABILITY = 0.9
_TOO_BIG = 1.15
"""A plan that needs this many times the memory that a device has is surely too big."""

# What follows from the rest of a plan, and is worked out anew where something else is changed.
_FOLLOWS: Mapping[str, tuple[str, ...]] = {
    "micro_batch_size": ("num_microbatches",),
    "vpp": ("layers_per_chunk", "schedule"),
    "schedule": ("vpp", "layers_per_chunk"),
    "recompute": ("recomputed_layers_per_stage", "recompute_modules"),
    "zero_stage": ("dp_shard", "dp_replicate", "reshard_after", "gradient_sync"),
}
_TUNED_OPTIONS = ("offload", "tp_overlap", "ep_overlap", "reshard_after", "gradient_sync", "fsdp_prefetch")
# What is about the devices of these axes: of one device there is nothing to shard, to gather or to hide.
_ONLY_BETWEEN: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("zero_stage", "reshard_after", "gradient_sync", "fsdp_prefetch"), ("dp", "cp")),
    "tp_overlap": ("tp",),
    "ep_overlap": ("ep",),
}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A legal plan that may fit.

    Attributes:
        origin: whether it is on the short list, elsewhere in the search's list, or a variant of one of its plans.
    """

    plan: Json
    prediction: Json
    origin: Origin


def candidates_of(request: SearchRequest) -> list[Candidate]:
    """Candidates in the order in which they should be tried: the short list, the rest of the list, variants by time.

    Raises:
        InvalidInput: the request can't be searched, or no plan fits.
    """
    asked = replace(request, top=max(SEARCHED, request.top), shortlist=request.shortlist or _PROBABILITY, explain=False)
    answer = whole_answer(asked, why=False)
    if not answer["plans"]:
        raise InvalidInput("devices", request.scenario.devices, "no plan fits: ask planner suggest for the reasons")
    short = {entry["id"] for entry in answer["shortlist"]["plans"]}
    first = [_listed(entry, "shortlist") for entry in answer["shortlist"]["plans"]]
    rest = [_listed(entry, "search") for entry in answer["plans"] if entry["id"] not in short]
    seen = [candidate.plan for candidate in (*first, *rest)]
    variants: list[Candidate] = []
    for entry in answer["plans"][:_VARIED]:
        for variant in variants_of(request, entry["plan"]):
            if variant.plan not in seen:
                seen.append(variant.plan)
                variants.append(variant)
    variants.sort(key=lambda variant: float(variant.prediction["step_time_s"]))
    return [*first, *rest, *variants]


def _listed(entry: Json, origin: Origin) -> Candidate:
    return Candidate(plan=entry["plan"], prediction=entry["prediction"], origin=origin)


def variants_of(request: SearchRequest, plan: Json) -> Iterator[Candidate]:
    """Legal plans that differ from a plan in one thing that can be tuned, heed the pins, and are not surely too big."""
    scenario = request.scenario
    usable = scenario.usable_bytes
    for field, value in _changes(request, plan):
        changed = {name: entry for name, entry in plan.items() if name not in _FOLLOWS.get(field, ())} | {field: value}
        completion = complete(read_draft(changed), scenario, {})
        judgement = judge(completion, scenario)
        if not completion.has_layers or judgement.illegal or judgement.policy:
            continue
        row = row_of_plan(scenario, completion.plan)
        if not all(request.constraints.allows(axis, number) for axis, number in row.items()):
            continue
        pricing = price(scenario, completion.plan)
        if pricing.prediction is None or float(pricing.most_bytes.max()) > usable * _TOO_BIG:
            continue
        yield Candidate(plan=completion.plan.model_dump(mode="json"), prediction=pricing.prediction, origin="variant")


def _changes(request: SearchRequest, plan: Json) -> Iterator[tuple[str, Any]]:
    size, framework = plan["micro_batch_size"], request.scenario.framework
    of_rank = size * plan["num_microbatches"]
    yield from (("micro_batch_size", other) for other in (size * 2, size // 2) if other and of_rank % other == 0)
    yield from (("recompute", other) for other in RECOMPUTES if other != plan["recompute"])
    if plan["recompute"] == "full":
        yield from (("recomputed_layers_per_stage", counts) for counts in _other_counts(plan))
    if _has_effect(plan, "zero_stage"):
        yield from (("zero_stage", stage) for stage in framework.zero_stages if stage != plan["zero_stage"])
    if plan["pp"] > 1:
        depth = max(plan["layers_per_stage"])
        yield from (("vpp", other) for other in {plan["vpp"] * 2, plan["vpp"] // 2} if 1 <= other <= depth)
        usual = [name for name in SCHEDULES if name in framework.schedules]
        yield from (("schedule", other) for other in usual if other != plan["schedule"])
    for name in _TUNED_OPTIONS:
        if not _has_effect(plan, name):
            continue
        option = BY_NAME[name]
        codes = [code for code in option.codes if name not in ALLOWABLE or not code or (name, code) in request.also]
        yield from ((name, value) for code in codes if (value := option.decode(code)) != plan[name])


def _has_effect(plan: Json, field: str) -> bool:
    """Whether another value would be another run: between devices that nothing is cut over it is the same one."""
    between = _ONLY_BETWEEN.get(field, ())
    if field == "gradient_sync" and plan["num_microbatches"] == 1:
        return False
    return not between or any(plan[axis] > 1 for axis in between)


def _other_counts(plan: Json) -> Iterator[list[int]]:
    """One recomputed layer less, and one more, on every device that has any to give."""
    counts, layers = plan["recomputed_layers_per_stage"], plan["layers_per_stage"]
    for step in (-1, 1):
        other = [min(max(count + step, 0), most) for count, most in zip(counts, layers, strict=True)]
        if other != counts:
            yield other
