"""One step of a plan as a timeline.

Every device runs the pieces of its order (``orders.py``). When it has run all, it exchanges what is left to exchange of
its gradients; the optimizer starts on all devices at once, as the norm that gradients are clipped to is that of the
whole model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from costmodel.facts import Facts
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.plan import Plan
from costmodel.stages import Placement
from costmodel.timeline.durations import Durations, durations_of
from costmodel.timeline.execute import Executed, execute
from costmodel.timeline.orders import orders_of

EventKind: TypeAlias = Literal["forward", "backward", "backward_inputs", "backward_weights", "exchange", "optimizer"]

MOST_EVENTS = 100_000
_KINDS: dict[str, EventKind] = {
    "F": "forward",
    "A": "backward",
    "B": "backward_inputs",
    "W": "backward_weights",
}
_SPLIT_PIECES = 3  # of a micro-batch on a stage at most: forward, and the two parts of a backward pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that a pipeline device does.

    Attributes:
        device: place in the pipeline.
        chunk: which of its chunks; None for what it does once a step. Both ways, 1 is the stage of the other direction.
        micro_batch: None for what it does once a step. Both ways, the second half goes in the other direction.
        start_s, end_s: seconds from the start of the step; two pieces that run side by side have the same.
    """

    device: int
    chunk: int | None
    micro_batch: int | None
    kind: EventKind
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One step.

    Attributes:
        events: by start, then device.
        step_time_s: seconds of the whole step.
        num_microbatches: micro-batches among the events; the plan's own unless these would be too many.
        left_out_s: seconds of the step that the events lack, in the steady state in the middle.
    """

    events: tuple[Event, ...]
    step_time_s: float
    num_microbatches: int
    left_out_s: float


def timeline_of(
    scenario: Scenario, plan: Plan, facts: Facts | None = None, *, most_events: int = MOST_EVENTS
) -> Timeline:
    """Execute one step of a legal plan.

    Args:
        facts: those of the scenario, where they are at hand.
        most_events: about how many there may be. A step with more is cut to fewer micro-batches, and what the others
            take follows from how long one more round of them takes then.

    Raises:
        ValueError: the schedule has no order for so few micro-batches, which its rules refuse.
    """
    durations = durations_of(facts or Facts.of(scenario), scenario, plan)
    shown, period = _shown(plan, most_events)
    executed = _executed(plan, durations, shown)
    left_out_s = 0.0
    if shown < plan.num_microbatches:
        whole, before = max(executed.ends_s), max(_executed(plan, durations, shown - period).ends_s)
        left_out_s = (plan.num_microbatches - shown) * (whole - before) / period
    events, step_time_s = _events(plan, durations, executed, shown)
    return Timeline(
        events=tuple(sorted(events, key=lambda event: (event.start_s, event.device))),
        step_time_s=step_time_s + left_out_s,
        num_microbatches=shown,
        left_out_s=left_out_s,
    )


def _shown(plan: Plan, most_events: int) -> tuple[int, int]:
    """Micro-batches to execute, and in what rounds they come."""
    period = plan.pp if plan.vpp > 1 else 2
    chunks = 2 if plan.schedule == "dualpipe" else plan.vpp
    affordable = most_events // (_SPLIT_PIECES * plan.pp * chunks)
    # A pipeline has to be filled, and then to come into its rhythm.
    fewest = 4 * plan.pp + 2 * period
    shown = max(affordable, fewest)
    return (plan.num_microbatches if shown >= plan.num_microbatches else _as(plan, shown, period)), period


def _as(plan: Plan, shown: int, period: int) -> int:
    """The most micro-batches up to ``shown`` that leave a whole number of rounds out."""
    return shown - (shown - plan.num_microbatches) % period


def _executed(plan: Plan, durations: Durations, num_microbatches: int) -> Executed:
    placement, pp = placement_of(plan.schedule), plan.pp

    def device_of(stage: int, batch: int) -> int:
        if placement == Placement.BOTH_WAYS:
            return stage if batch < num_microbatches // 2 else pp - 1 - stage
        turned = placement == Placement.V and stage // pp % 2 == 1
        return pp - 1 - stage % pp if turned else stage % pp

    return execute(orders_of(plan.schedule, pp, plan.vpp, num_microbatches), durations, device_of)


def _events(plan: Plan, d: Durations, executed: Executed, num_microbatches: int) -> tuple[list[Event], float]:
    """All events, and when the last of them ends."""
    events: list[Event] = []
    both_ways = placement_of(plan.schedule) == Placement.BOTH_WAYS
    for device, (kind, stage, batch), start, end in executed.runs:
        chunk = int(batch >= num_microbatches // 2) if both_ways else stage // plan.pp
        start, end = d.fixed_s + start, d.fixed_s + end
        events.append(Event(device=device, chunk=chunk, micro_batch=batch, kind=_KINDS[kind], start_s=start, end_s=end))
    exchanged = [d.fixed_s + end + seconds for end, seconds in zip(executed.ends_s, d.exchange_s, strict=True)]
    update = max(exchanged)
    for device, end in enumerate(exchanged):
        once = {"device": device, "chunk": None, "micro_batch": None}
        events.append(Event(**once, kind="exchange", start_s=d.fixed_s + executed.ends_s[device], end_s=end))  # type: ignore[arg-type]
        events.append(Event(**once, kind="optimizer", start_s=update, end_s=update + d.update_s[device]))  # type: ignore[arg-type]
    return events, max(event.end_s for event in events)
