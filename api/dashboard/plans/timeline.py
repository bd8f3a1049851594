"""A step executed piece by piece, once for each plan, and the window of it that a URL asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.dashboard.plans.stored import Priced
from api.last_used import LastUsed
from costmodel.timeline.timeline import timeline_of
from planner.export.trace.events import spread_over_step

MOST_EVENTS = 8_000
"""What is executed at least; a deep pipeline has to be filled all the same."""

_WINDOW = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)-(\d{1,3}(?:\.\d{1,6})?)", re.ASCII)
LEAST_WINDOW = 1e-3
"""Per cent of the step."""
_CLASSES = {
    "forward": "f",
    "backward": "b",
    "backward_inputs": "b",
    "backward_weights": "w",
    "exchange": "x",
    "optimizer": "o",
}
NAMES = {
    "f": ("forward", 0),
    "b": ("backward", 2),
    "w": ("backward of weights", 4),
    "x": ("exchange of gradients and parameters", 1),
    "o": ("optimizer", 6),
    "s": ("once a step, before anything else", 5),
    "l": ("left out", 7),
}
"""Classes of pieces, with their names and hues; what is blank waits."""

ORDER = tuple(NAMES)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Window:
    """A part of the step, in per cent of it."""

    start: float = 0.0
    end: float = 100.0

    @property
    def text(self) -> str:
        """As the URL has it."""
        return f"{_short(self.start)}-{_short(self.end)}"

    @property
    def is_whole(self) -> bool:
        return self.start <= 0.0 and self.end >= 100.0


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """What one device does, in the order of time; one entry a piece in every array.

    Attributes:
        kind: position in ``NAMES``.
        batch, chunk: -1 where there is none; of what is left out, ``batch`` is how many.
    """

    start_s: Floats
    end_s: Floats
    kind: Ints
    batch: Ints
    chunk: Ints

    def within(self, start_s: float, end_s: float) -> Pieces:
        """Those of which some is in a window."""
        rows = (self.end_s > start_s) & (self.start_s < end_s)
        return Pieces(
            start_s=self.start_s[rows],
            end_s=self.end_s[rows],
            kind=self.kind[rows],
            batch=self.batch[rows],
            chunk=self.chunk[rows],
        )


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step that was executed: what each device does, where it is in the whole step.

    Attributes:
        left_out: micro-batches that are not drawn.
        step_time_s: as executed.
        chunked: whether pieces are of several chunks.
    """

    devices: tuple[Pieces, ...]
    chunked: bool
    step_time_s: float
    left_out: int
    left_out_s: float


_STEPS: LastUsed[str, Step | None] = LastUsed(12)


def window_of(text: str) -> Window | None:
    """``25-37.5``; None of what is no window."""
    found = _WINDOW.fullmatch(text)
    if found is None:
        return None
    start, end = float(found[1]), float(found[2])
    return Window(start=start, end=end) if end <= 100.0 and end - start >= LEAST_WINDOW else None


def step_of(priced: Priced) -> Step | None:
    """The step of a plan, executed once; None where the schedule has no order for so few micro-batches."""
    return _STEPS.get(priced.id, lambda: _executed(priced))


def _executed(priced: Priced) -> Step | None:
    plan = priced.plan
    # As where a plan is priced: to the cost model this is a fact of the whole run.
    scenario = priced.scenario.model_copy(update={"sequence_parallel": plan.sequence_parallel or plan.tp == 1})
    try:
        timeline = timeline_of(scenario, plan, most_events=MOST_EVENTS)
    except ValueError:
        return None
    events, gaps = spread_over_step(timeline, plan)
    devices: list[list[tuple[float, float, int, int, int]]] = [[] for _ in range(plan.pp)]
    for event in events:
        kind = ORDER.index(_CLASSES[event.kind])
        batch, chunk = (-1 if at is None else at for at in (event.micro_batch, event.chunk))
        devices[event.device].append((event.start_s, event.end_s, kind, batch, chunk))
    fixed_s = min(event.start_s for event in events)
    for gap in gaps:
        devices[gap.device].append((gap.start_s, gap.end_s, ORDER.index("l"), gap.micro_batches, -1))
    if fixed_s > 0.0:
        for pieces in devices:
            pieces.append((0.0, fixed_s, ORDER.index("s"), -1, -1))
    return Step(
        devices=tuple(_pieces(sorted(pieces)) for pieces in devices),
        step_time_s=timeline.step_time_s,
        left_out=plan.num_microbatches - timeline.num_microbatches,
        left_out_s=timeline.left_out_s,
        chunked=plan.vpp > 1 or plan.schedule == "dualpipe",
    )


def _pieces(rows: Sequence[tuple[float, float, int, int, int]]) -> Pieces:
    start, end, kind, batch, chunk = zip(*rows, strict=True)
    return Pieces(
        start_s=np.array(start),
        end_s=np.array(end),
        kind=np.array(kind),
        batch=np.array(batch),
        chunk=np.array(chunk),
    )


def _short(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".") or "0"
