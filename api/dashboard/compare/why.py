"""Why one plan is faster than another, in words: what decides, and the way from the one to the other axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.compare.sides import PER_TOKEN, per_token, scaled
from api.dashboard.plans.stored import Priced, StoredPlan
from api.dashboard.terms import time_name
from api.dashboard.words import GIB
from costmodel.errors import InvalidInput
from costmodel.facts import Facts
from costmodel.plan_errors import plan_errors
from planner.explain.beats import beats
from planner.explain.differences import axis_differences, choices_in_words, seconds_in_words
from planner.explain.disagreements import disagreements, row_of
from planner.search.objective import Objective

Json = dict[str, Any]

_STEP_TIME = Objective(kind="step_time", price=0.0)
_AS_FAST = 5e-4
_NEAR_PARTS = 4


@dataclass(frozen=True, kw_only=True)
class Change:
    """One step of the way from the slower plan to the faster one.

    Attributes:
        by: what the step time gains or loses, in words.
        tone: ``less`` or ``more``.
    """

    choice: str
    by: str
    tone: str
    parts: str


@dataclass(frozen=True, kw_only=True)
class Why:
    """A pair of plans.

    Attributes:
        title: which is faster, by how much.
        decides: parts of the step and what else differs, a line each.
        chosen: what the faster one has chosen otherwise; empty where both are the same plan.
        sure: how sure the order is; empty where that is not known.
        meaning: of the seconds in ``decides``; empty for those of a step.
        changes: none where the plans do different work, or one can't be priced any more.
    """

    title: str
    decides: tuple[str, ...]
    chosen: str
    sure: str = ""
    meaning: str = ""
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One of the plans.

    Attributes:
        number: how texts call it.
        priced: as the cost model reads it; None where it is not today's that priced the plan.
    """

    number: int
    stored: StoredPlan
    priced: Priced | None

    @property
    def step_time_s(self) -> float:
        return float(self.stored.prediction["step_time_s"])

    @property
    def entry(self) -> Json:
        """As answers hold it."""
        return {"plan": self.stored.plan, "prediction": self.stored.prediction}

    @property
    def entry_per_token(self) -> Json:
        """The same on the scale of plans that do different work."""
        return self.entry | {"prediction": scaled(self.stored.prediction, per_token(self.stored))}

    @property
    def per_token_s(self) -> float:
        return self.step_time_s * per_token(self.stored)

    @property
    def numbers(self) -> tuple[str, str]:
        """What priced it."""
        return self.stored.document["calibration_id"], self.stored.document["cost_model"]


def why(plans: Sequence[Compared]) -> list[Why]:
    """The best plan against each of the others, in their order; by the step where all do the same, else by the token.

    Two that do the same step are held against each other by that, whatever the others do.
    """
    alike = len({plan.stored.work for plan in plans}) == 1
    best = min(plans, key=lambda plan: plan.step_time_s if alike else plan.per_token_s)
    return [_pair(best, other) for other in plans if other is not best]


def _pair(best: Compared, other: Compared) -> Why:
    if best.stored.work != other.stored.work:
        found = beats(best.entry_per_token, other.entry_per_token, of="device", name=time_name)
        return _why(best, other, found, meaning=PER_TOKEN.meaning)
    if other.step_time_s < best.step_time_s:
        best, other = other, best
    same_numbers = best.numbers == other.numbers
    changes: tuple[Change, ...] = ()
    if same_numbers and best.priced is not None and other.priced is not None:
        changes = _way(other.priced, best.priced, best.entry)
    found = beats(best.entry, other.entry, name=time_name)
    return _why(best, other, found, sure=_sure(best, other) if same_numbers else "", changes=changes)


def _why(best: Compared, other: Compared, found: Json, **more: Any) -> Why:
    ours, theirs = best.stored.plan, other.stored.plan
    return Why(
        title=_title(best.number, other.number, found["share"], " per token" if more.get("meaning") else ""),
        decides=tuple(part.strip() for part in found["parts"].split("; ")),
        chosen=_chosen(ours, theirs),
        **more,
    )


def _chosen(ours: Json, theirs: Json) -> str:
    """What a plan has otherwise than another; empty where they are the same."""
    if ours == theirs:
        return ""
    size, other = ours["global_batch_size"], theirs["global_batch_size"]
    batch = [] if size == other else [f"a batch of {size:,} instead of {other:,} sequences"]
    axes = axis_differences(theirs, ours)
    if not axes and batch and ours["layers_per_stage"] == theirs["layers_per_stage"]:
        return batch[0]
    return ", ".join([*batch, choices_in_words(axes, theirs, ours)])


def _title(best: int, other: int, share: float, per: str) -> str:
    if abs(share) < _AS_FAST:
        return f"Plans {best} and {other} are as fast{per}, to {_AS_FAST:.2%}"
    slower = share / (1.0 - share)
    if slower >= 1.0:
        return f"Why plan {other} takes {1.0 + slower:.1f} times as long as plan {best}{per}"
    return f"Why plan {other} is {slower:.1%} slower than plan {best}{per}"


def _sure(best: Compared, other: Compared) -> str:
    """The share of ways in which errors may fall that keep the order; errors that plans share change nothing."""
    slowness = plan_errors().slowness([best.step_time_s, other.step_time_s], [best.stored.plan, other.stored.plan])
    kept = float((slowness[:, 0] <= slowness[:, 1]).mean())
    return (
        f"As far as predictions of such plans have erred, plan {best.number} is also the faster one when it runs with "
        f"a probability of {kept:.0%}."
    )


def _way(slower: Priced, faster: Priced, best: Json) -> tuple[Change, ...]:
    """From the slower plan to the faster one, one change after the other, each priced."""
    scenario = slower.scenario
    facts = Facts.of(scenario)
    try:
        rows = [row_of(scenario, priced.plan.model_dump(mode="json")) for priced in (slower, faster)]
        steps = disagreements(scenario, facts, _STEP_TIME, rows[0], rows[1], best)
    except (InvalidInput, ValueError):
        return ()
    return tuple(map(_change, steps))


def _change(step: Json) -> Change:
    axes = [{"axis": one["axis"], "ours": one["procedure"], "theirs": one["search"]} for one in step["axes"]]
    by = step["step_time_s"]
    parts = [
        f"{seconds_in_words(abs(value))} {'less' if value < 0 else 'more'} {time_name(part)}"
        for part, value in list(step["time"].items())[:_NEAR_PARTS]
    ]
    if abs(step["memory_bytes"]) >= GIB / 10:
        size = abs(step["memory_bytes"]) / GIB
        parts.append(f"{size:.1f} GiB {'less' if step['memory_bytes'] < 0 else 'more'} memory")
    on_the_way = "" if step["fits"] else " (does not fit until what follows)"
    return Change(
        choice=choices_in_words(axes) + on_the_way,
        by=f"{seconds_in_words(abs(by))} {'less' if by < 0 else 'more'}",
        tone="less" if by < 0 else "more",
        parts=", ".join(parts) or "about the same time and memory",
    )
