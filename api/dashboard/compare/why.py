"""Why one plan is faster than another, in words: what decides, and the way from the one to the other axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.plans.stored import Priced
from api.dashboard.terms import GIB, time_name
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
        changes: none where the plans are of different scenarios, or one can't be priced any more.
    """

    title: str
    decides: tuple[str, ...]
    chosen: str
    sure: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One of the plans.

    Attributes:
        number: how texts call it.
        prediction: on the scale of them all.
        priced: as the cost model reads it; None where another cost model or calibration priced some of them.
    """

    number: int
    plan: Json
    prediction: Json
    priced: Priced | None

    @property
    def step_time_s(self) -> float:
        return float(self.prediction["step_time_s"])

    @property
    def entry(self) -> Json:
        """As answers hold it."""
        return {"plan": self.plan, "prediction": self.prediction}


def why(plans: Sequence[Compared], *, same_work: bool, same_numbers: bool) -> list[Why]:
    """The fastest plan against each of the others, in their order.

    Args:
        same_work: whether they are of one scenario.
        same_numbers: whether one cost model and one calibration priced them all.
    """
    best = min(plans, key=lambda plan: plan.step_time_s)
    return [_pair(best, other, same_work, same_numbers) for other in plans if other is not best]


def _pair(best: Compared, other: Compared, same_work: bool, same_numbers: bool) -> Why:
    found = beats(best.entry, other.entry)
    changes: tuple[Change, ...] = ()
    if same_work and best.priced is not None and other.priced is not None:
        changes = _way(other.priced, best.priced, best.entry)
    alike = best.plan == other.plan
    return Why(
        title=_title(best.number, other.number, found["share"], "" if same_work else " per token"),
        decides=tuple(part.strip() for part in found["parts"].split("; ")),
        chosen="" if alike else choices_in_words(axis_differences(other.plan, best.plan)),
        sure=_sure(best, other) if same_work and same_numbers else "",
        changes=changes,
    )


def _title(best: int, other: int, share: float, per: str) -> str:
    if abs(share) < _AS_FAST:
        return f"Plans {best} and {other} are as fast{per}, to {_AS_FAST:.2%}"
    slower = share / (1.0 - share)
    if slower >= 1.0:
        return f"Why plan {other} takes {1.0 + slower:.1f} times as long as plan {best}{per}"
    return f"Why plan {other} is {slower:.1%} slower than plan {best}{per}"


def _sure(best: Compared, other: Compared) -> str:
    """The share of ways in which errors may fall that keep the order; errors that plans share change nothing."""
    slowness = plan_errors().slowness([best.step_time_s, other.step_time_s], [best.plan, other.plan])
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
