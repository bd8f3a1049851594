"""The events of a timeline in the trace event format, a track for each pipeline device.

Format: "Trace Event Format", by the authors of Catapult, which Perfetto reads as well. Times are microseconds, to the
nanosecond. What ran side by side on a device has the same start and end, and is drawn as one below the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from costmodel.schedules import placement_of
from costmodel.spec.plan import Plan
from costmodel.stages import Placement
from costmodel.timeline.timeline import Event, EventKind, Timeline

TraceEvent = dict[str, Any]

PROCESS, STEP_TRACK = 1, 1
_FIRST_DEVICE_TRACK = 2
_NAMES: dict[EventKind, str] = {
    "forward": "forward",
    "backward": "backward",
    "backward_inputs": "backward of inputs",
    "backward_weights": "backward of weights",
    "exchange": "exchange of gradients and parameters",
    "optimizer": "optimizer",
}


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Micro-batches in the middle of a step, which a device is shown to spend in one piece."""

    device: int
    micro_batches: int
    start_s: float
    end_s: float


def device_track(device: int) -> int:
    """The thread id of a pipeline device."""
    return _FIRST_DEVICE_TRACK + device


def spread_over_step(timeline: Timeline, plan: Plan) -> tuple[list[Event], list[LeftOut]]:
    """The events where they are in the whole step, and what is left out between them.

    A timeline of many micro-batches lacks those of the steady state. There every device repeats itself, so what comes
    after the middle of its events comes later by all that is left out, with numbers as much higher.
    """
    missing = plan.num_microbatches - timeline.num_microbatches
    if not missing:
        return list(timeline.events), []
    both_ways = placement_of(plan.schedule) == Placement.BOTH_WAYS
    # Both ways a half of the micro-batches goes in each direction, and those of the other one are numbered from there.
    missing_each = missing // 2 if both_ways else missing
    pieces = [event for event in timeline.events if event.micro_batch is not None]
    middle = (pieces[0].start_s + max(event.end_s for event in pieces)) / 2
    events: list[Event] = []
    gaps: list[LeftOut] = []
    until, after = dict[int, float](), set[int]()
    for event in timeline.events:
        device = event.device
        if device not in after and _is_after(event, middle, plan):
            after.add(device)
            end = event.start_s + timeline.left_out_s
            gaps.append(LeftOut(device=device, micro_batches=missing, start_s=until.get(device, 0.0), end_s=end))
        until[device] = max(until.get(device, 0.0), event.end_s)
        later = timeline.left_out_s if device in after else 0.0
        events.append(
            replace(
                event,
                start_s=event.start_s + later,
                end_s=event.end_s + later,
                micro_batch=_renumbered(event, missing_each, both_ways=both_ways, after=device in after),
            )
        )
    return events, gaps


def _is_after(event: Event, middle: float, plan: Plan) -> bool:
    """Whether an event is the first of its device that comes after the cut.

    GPipe has no steady state of both passes: what is left out is the end of its forward and the start of its backward.
    """
    if plan.schedule == "gpipe":
        return event.kind != "forward"
    return event.start_s >= middle


def _renumbered(event: Event, missing: int, *, both_ways: bool, after: bool) -> int | None:
    if event.micro_batch is None:
        return None
    return event.micro_batch + missing * (int(both_ways and event.chunk == 1) + int(after))


def devices_shown(plan: Plan, events: int, most: int) -> list[int]:
    """Pipeline devices that are drawn: all, or as many as there is room for, the first and the last among them."""
    count = min(plan.pp, max(2, most * plan.pp // max(events, 1)))
    if count == plan.pp:
        return list(range(plan.pp))
    return sorted({round(index * (plan.pp - 1) / (count - 1)) for index in range(count)})


def trace_events(
    plan: Plan, step_time_s: float, events: Sequence[Event], gaps: Sequence[LeftOut], devices: Sequence[int]
) -> Iterator[TraceEvent]:
    """All events of the trace, names of tracks first."""
    pipelines = plan.devices_used // plan.pp
    yield _named("process_name", STEP_TRACK, f"one of {pipelines} equal pipelines of {plan.pp} devices")
    yield _named("thread_name", STEP_TRACK, "step")
    yield _sorted_at(STEP_TRACK)
    for device in devices:
        layers = plan.layers_per_stage[device]
        yield _named("thread_name", device_track(device), f"device {device} ({layers} layers)")
        yield _sorted_at(device_track(device))
    yield from _complete("step", "step", STEP_TRACK, 0.0, step_time_s, {})
    fixed_s = min((event.start_s for event in events), default=0.0)
    yield from _complete("once a step", "fixed", STEP_TRACK, 0.0, fixed_s, {})
    drawn = set(devices)
    for gap in gaps:
        if gap.device in drawn:
            name = f"{gap.micro_batches} micro-batches left out"
            yield from _complete(name, "left_out", device_track(gap.device), gap.start_s, gap.end_s, {})
    for event in events:
        if event.device in drawn:
            yield from _piece(event, plan)


def _piece(event: Event, plan: Plan) -> Iterator[TraceEvent]:
    name, args = _NAMES[event.kind], dict[str, Any]()
    if event.micro_batch is not None:
        name = f"{name} {event.micro_batch}"
        args["micro_batch"] = event.micro_batch
        if plan.vpp > 1 or plan.schedule == "dualpipe":
            name = f"{name} chunk {event.chunk}"
            args["chunk"] = event.chunk
    yield from _complete(name, event.kind, device_track(event.device), event.start_s, event.end_s, args)


def _complete(
    name: str, category: str, track: int, start_s: float, end_s: float, args: dict[str, Any]
) -> Iterator[TraceEvent]:
    start, end = round(start_s * 1e9), round(end_s * 1e9)
    if end > start:
        where = {"pid": PROCESS, "tid": track, "ts": start / 1e3, "dur": (end - start) / 1e3}
        yield {"name": name, "cat": category, "ph": "X", **where, **({"args": args} if args else {})}


def _named(what: str, track: int, name: str) -> TraceEvent:
    return {"name": what, "ph": "M", "pid": PROCESS, "tid": track, "args": {"name": name}}


def _sorted_at(track: int) -> TraceEvent:
    return {"name": "thread_sort_index", "ph": "M", "pid": PROCESS, "tid": track, "args": {"sort_index": track}}
