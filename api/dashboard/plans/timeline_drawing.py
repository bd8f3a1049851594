"""The pipeline's timeline as a picture: a row for every device, in a window of the step.

Pieces are drawn as they are where there is room for them. Where a row has more, it is cut into columns, each of which
shows how much of its time is forward, backward and the rest; so the picture has about as many shapes for any plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from api.dashboard.charts.scales import label
from api.dashboard.plans.timeline import LEAST_WINDOW, NAMES, ORDER, Floats, Pieces, Step, Window
from api.dashboard.words import seconds

WIDTH = 1180
"""Pixels of a picture."""

_LEFT, _RIGHT = 58, 8
_TOP, _AXIS = 4, 26
_TALLEST, _LEAST, _ALL_ROWS = 22, 7, 560  # pixels of a row, and what all of them should take
_MOST_SHAPES = 7_000
_MOST_TOLD = 700  # pieces that say what they are when they are pointed at
_NUMBERED = 17.0  # pixels of a piece that its micro-batch is written on
_NUMBERED_ROW = 10.0  # pixels that its row is high
_NARROWEST = 1.5  # pixels of a column
_THINNEST = 0.2  # pixels of what hardly takes time


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A piece that is told apart."""

    x: float
    width: float
    kind: str
    said: str
    number: str = ""


@dataclass(kw_only=True)
class Row:
    """A device: pieces one by one, or all of a class as one path."""

    device: int
    y: float
    label: str
    shapes: list[Shape] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Move:
    """A link to another window; ``window`` is empty where there is nothing to go to."""

    name: str
    sign: str
    window: str


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The picture.

    Attributes:
        summed: whether some rows show shares of columns instead of pieces.
        parts: windows that a click on the time axis leads to: left, width, window, and words.
    """

    width: int
    height: int
    left: int
    right: int
    bottom: float
    row_height: float
    rows: tuple[Row, ...]
    ticks: tuple[tuple[float, str], ...]
    parts: tuple[tuple[float, float, str, str], ...]
    moves: tuple[Move, ...]
    window: Window
    kinds: tuple[tuple[str, str, int], ...]
    summed: bool
    told: str


@dataclass(frozen=True, kw_only=True)
class Above:
    """Words that stand above every picture, for their place is kept until it comes."""

    kinds: tuple[str, ...]
    moves: tuple[Move, ...]


def height_of(devices: int) -> int:
    """Pixels of a picture of so many devices, at its own width."""
    return round(_TOP + devices * _pitch(devices) + 2 + _AXIS)


def _pitch(devices: int) -> float:
    return min(_TALLEST, max(_LEAST, _ALL_ROWS / devices))


def picture_of(step: Step, window: Window) -> Picture:
    """The step in a window."""
    count = len(step.devices)
    pitch = _pitch(count)
    row_height = pitch - (2 if pitch > 10 else 1)
    start, end = (share / 100 * step.step_time_s for share in (window.start, window.end))
    view = _View(start_s=start, end_s=end, height=row_height)
    seen = [pieces.within(start, end) for pieces in step.devices]
    told = sum(pieces.kind.size for pieces in seen) <= _MOST_TOLD
    rows: list[Row] = []
    summed = False
    every = -(-12 // int(pitch)) if pitch < 12 else 1
    for device, pieces in enumerate(seen):
        name = f"stage {device}" if pitch >= 12 else str(device)
        row = Row(device=device, y=round(_TOP + device * pitch, 2), label=name if device % every == 0 else "")
        if told:
            row.shapes = _shapes(pieces, view, chunked=step.chunked)
        elif pieces.kind.size <= _MOST_SHAPES // count:
            row.paths = _paths(pieces, view, row.y)
        else:
            summed = True
            row.paths = _columns(pieces, view, row.y, _MOST_SHAPES // count)
        rows.append(row)
    bottom = _TOP + count * pitch + 2
    kinds = {ORDER[kind] for pieces in seen for kind in np.unique(pieces.kind)}
    return Picture(
        width=WIDTH,
        height=height_of(count),
        left=_LEFT,
        right=WIDTH - _RIGHT,
        bottom=round(bottom, 2),
        row_height=row_height,
        rows=tuple(rows),
        ticks=_ticks(view),
        parts=_parts(window),
        moves=_moves(window),
        window=window,
        kinds=tuple((kind, *NAMES[kind]) for kind in NAMES if kind in kinds),
        summed=summed,
        told=(
            f"What each of {count} pipeline devices does from {seconds(start)} to {seconds(end)} s of a step of "
            f"{seconds(step.step_time_s)} s"
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _View:
    """A window in seconds, and the height of a row in pixels."""

    start_s: float
    end_s: float
    height: float

    @property
    def scale(self) -> float:
        return (WIDTH - _LEFT - _RIGHT) / (self.end_s - self.start_s)

    def places(self, pieces: Pieces) -> tuple[list[float], list[float]]:
        """Left ends and widths."""
        left = np.maximum(pieces.start_s, self.start_s)
        width = (np.minimum(pieces.end_s, self.end_s) - left) * self.scale
        x = _LEFT + (left - self.start_s) * self.scale
        return x.round(2).tolist(), np.maximum(width.round(2), _THINNEST).tolist()


def _shapes(pieces: Pieces, view: _View, *, chunked: bool) -> list[Shape]:
    """Every piece by itself, with what it is."""
    found: list[Shape] = []
    for place, (x, width) in enumerate(zip(*view.places(pieces), strict=True)):
        kind, batch = ORDER[pieces.kind[place]], int(pieces.batch[place])
        if kind == "l":
            said = f"{batch} micro-batches more, each as those beside it"
        else:
            said = NAMES[kind][0] + (f" of micro-batch {batch}" if batch >= 0 else "")
            said += f", chunk {pieces.chunk[place]}" if chunked and batch >= 0 else ""
        numbered = batch >= 0 and kind != "l" and width >= _NUMBERED and view.height >= _NUMBERED_ROW
        said = f"{said}: {pieces.start_s[place]:.6g} to {pieces.end_s[place]:.6g} s"
        found.append(Shape(x=x, width=width, kind=kind, said=said, number=str(batch) if numbered else ""))
    return found


def _paths(pieces: Pieces, view: _View, y: float) -> dict[str, str]:
    """A rectangle for every piece; all of one class in one path."""
    found: dict[str, list[str]] = {}
    for kind, x, width in zip(pieces.kind.tolist(), *view.places(pieces), strict=True):
        found.setdefault(ORDER[kind], []).append(f"M{x:g} {y:g}h{width:g}v{view.height:g}h{-width:g}z")
    return {kind: "".join(parts) for kind, parts in found.items()}


def _columns(pieces: Pieces, view: _View, y: float, most: int) -> dict[str, str]:
    """Columns of one width; in each the classes stand on each other as high as their share of its time."""
    room = WIDTH - _LEFT - _RIGHT
    count = int(min(room / _NARROWEST, most))
    edges = np.linspace(view.start_s, view.end_s, count + 1)
    width = room / count
    foot = np.zeros(count)
    found: dict[str, str] = {}
    for code, kind in enumerate(ORDER):
        rows = pieces.kind == code
        if not rows.any():
            continue
        spent = np.diff(_spent(pieces.start_s[rows], pieces.end_s[rows], edges)) / np.diff(edges)
        high = np.minimum((spent * view.height).round(), view.height - foot)
        changes = np.flatnonzero((np.diff(high) != 0) | (np.diff(foot) != 0)) + 1
        parts: list[str] = []
        for first, last in pairwise([0, *changes.tolist(), count]):
            if high[first] > 0:
                wide, top = (last - first) * width, y + view.height - foot[first]
                parts.append(f"M{_LEFT + first * width:.1f} {top:g}h{wide:.1f}v{-high[first]:g}h{-wide:.1f}z")
        if parts:
            found[kind] = "".join(parts)
        foot = foot + high
    return found


def _spent(start_s: Floats, end_s: Floats, until_s: Floats) -> Floats:
    """Seconds that pieces, which don't overlap, have taken up to some moments."""
    lasted = end_s - start_s
    before = np.concatenate(([0.0], np.cumsum(lasted)))
    place = np.searchsorted(start_s, until_s, side="right")
    inside = np.clip(until_s - start_s[place - 1], 0.0, lasted[place - 1])
    return np.where(place > 0, before[place - 1] + inside, 0.0)


def _ticks(view: _View) -> tuple[tuple[float, str], ...]:
    """Round values of the time axis."""
    start, end, scale = view.start_s, view.end_s, view.scale
    rough = (end - start) / 8
    step = 10.0 ** len(str(int(rough))) if rough >= 1 else 1.0
    while step > rough:
        step /= 10
    step = next(step * factor for factor in (1, 2, 5, 10) if step * factor >= rough)
    first = int(start / step) + (start > 0)
    places = [round(place * step, 9) for place in range(first, int(end / step) + 1)]
    return tuple((round(_LEFT + (at - start) * scale, 2), f"{label(at)}") for at in places)


def _parts(window: Window) -> tuple[tuple[float, float, str, str], ...]:
    """Eighths of the window, to zoom into."""
    span = (window.end - window.start) / 8
    if span < LEAST_WINDOW:
        return ()
    width = (WIDTH - _LEFT - _RIGHT) / 8
    found: list[tuple[float, float, str, str]] = []
    for part in range(8):
        inside = Window(start=window.start + part * span, end=window.start + (part + 1) * span)
        words = f"zoom to {inside.text} % of the step"
        found.append((round(_LEFT + part * width, 2), round(width, 2), inside.text, words))
    return tuple(found)


def _moves(window: Window) -> tuple[Move, ...]:
    span = window.end - window.start
    middle = (window.start + window.end) / 2
    left, right = max(window.start - span / 2, 0.0), min(window.end + span / 2, 100.0)
    inner = Window(start=middle - span / 4, end=middle + span / 4)
    wider = min(span, 50.0)
    outer = Window(start=max(middle - wider, 0.0), end=min(middle + wider, 100.0))
    found = (
        ("earlier", "←", Window(start=left, end=left + span) if window.start > 0 else None),
        ("later", "→", Window(start=right - span, end=right) if window.end < 100 else None),
        ("zoom in", "+", inner if span / 2 >= LEAST_WINDOW else None),
        ("zoom out", "−", None if window.is_whole else outer),
        ("whole step", "", None if window.is_whole else Window()),
    )
    return tuple(Move(name=name, sign=sign, window=to.text if to else "") for name, sign, to in found)


ABOVE = Above(kinds=tuple(NAMES[kind][0] for kind in "fbxos"), moves=_moves(Window()))
"""As of most plans."""
