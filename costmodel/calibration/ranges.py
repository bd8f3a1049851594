"""What the runs that a calibration was fitted to were like, kind by kind, and how far beyond them a case lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log2

from pydantic import Field

from costmodel.spec.base import Frozen, PositiveInt

Span = tuple[PositiveInt, PositiveInt]
"""The least and the most of something."""

SIZES = ("devices", "parameters", "seq_len")
"""What is given with a question."""
DEGREES = ("micro_batch_size", "tp", "pp", "cp", "ep")
"""What a plan chooses. One is within every range: it takes something away that the model prices, and adds nothing."""
AXES = SIZES + DEGREES

# How far something lies that no run had at all, a framework on such devices or a precision: as far as one doubling.
UNSEEN_KIND = 1.0


class RunRange(Frozen):
    """The runs of one framework on one family of accelerators.

    Attributes:
        framework: the engine, as parameters are keyed.
        ran_on: accelerators that runs were on; empty where a file doesn't tell.
        precisions: recipes that runs used.
        runs: how many there were.
        parameters: of the model, all of them.
        seq_len: tokens.
    """

    family: str
    framework: str
    ran_on: tuple[str, ...] = ()
    precisions: tuple[str, ...] = Field(min_length=1)
    runs: PositiveInt
    devices: Span
    parameters: Span
    seq_len: Span
    micro_batch_size: Span
    tp: Span
    pp: Span
    cp: Span
    ep: Span


@dataclass(frozen=True, kw_only=True)
class Beyond:
    """One thing in which a case lies outside of what runs were like.

    Attributes:
        axis: one of ``AXES``, or ``framework`` or ``precision``.
        doublings: how far; fractions count.
        text: the same for people, with what runs had.
    """

    axis: str
    doublings: float
    text: str


@dataclass(frozen=True, kw_only=True)
class _Kinds:
    """The ranges that speak of a case, and whether they are of its own kind."""

    ranges: tuple[RunRange, ...]
    where: str
    unseen: str | None


def beyond_ranges(
    ranges: Sequence[RunRange], *, family: str, framework: str, precision: str, values: Mapping[str, int]
) -> tuple[Beyond, ...]:
    """In what a case lies outside; empty when it lies inside, or when a calibration was fitted to no runs.

    A framework that no run had on such devices is held against its runs on others, and one that no run had at all
    against all runs.

    Args:
        values: axis -> value; axes that are left out aren't judged.
    """
    if not ranges:
        return ()
    kinds = _kinds_of(tuple(ranges), family, framework)
    found: list[Beyond] = []
    if kinds.unseen is not None:
        found.append(Beyond(axis="framework", doublings=UNSEEN_KIND, text=kinds.unseen))
    seen = sorted({name for entry in kinds.ranges for name in entry.precisions})
    if precision not in seen:
        text = f"precision {precision}, {kinds.where} were in {', '.join(seen)}"
        found.append(Beyond(axis="precision", doublings=UNSEEN_KIND, text=text))
    for axis, value in values.items():
        least = 1 if axis in DEGREES else min(getattr(entry, axis)[0] for entry in kinds.ranges)
        most = max(getattr(entry, axis)[1] for entry in kinds.ranges)
        if not least <= value <= most:
            far = log2(value / most) if value > most else log2(least / value)
            told = f"{_shown(axis, least)} to {_shown(axis, most)}" if least < most else _shown(axis, most)
            text = f"{_TITLES.get(axis, axis)} {_shown(axis, value)}, {kinds.where} had {told}"
            found.append(Beyond(axis=axis, doublings=far, text=text))
    return tuple(found)


def farthest(beyond: Iterable[Beyond]) -> float:
    """Doublings beyond what runs were like in the worst respect; 0 for a case inside.

    Sizes grow together (more devices have more stages and larger models), so to add them up would count one step out
    several times.
    """
    return max((entry.doublings for entry in beyond), default=0.0)


def merged(*parts: Iterable[RunRange]) -> tuple[RunRange, ...]:
    """One range for each kind, over all that were given."""
    found: dict[tuple[str, str], RunRange] = {}
    for entry in (entry for part in parts for entry in part):
        key = (entry.family, entry.framework)
        found[key] = entry if key not in found else _joined(found[key], entry)
    return tuple(found[key] for key in sorted(found))


def _joined(a: RunRange, b: RunRange) -> RunRange:
    spans = {
        axis: (min(getattr(a, axis)[0], getattr(b, axis)[0]), max(getattr(a, axis)[1], getattr(b, axis)[1]))
        for axis in AXES
    }
    names = {field: tuple(sorted({*getattr(a, field), *getattr(b, field)})) for field in ("ran_on", "precisions")}
    return a.model_copy(update={**names, "runs": a.runs + b.runs, **spans})


@lru_cache(maxsize=256)
def _kinds_of(ranges: tuple[RunRange, ...], family: str, framework: str) -> _Kinds:
    own = tuple(entry for entry in ranges if (entry.family, entry.framework) == (family, framework))
    if own:
        return _Kinds(ranges=own, where=f"runs on {family} with {framework}", unseen=None)
    elsewhere = tuple(entry for entry in ranges if entry.framework == framework)
    if elsewhere:
        families = ", ".join(sorted({entry.family for entry in elsewhere}))
        unseen = f"no run on {family} with {framework}, only on {families}"
        return _Kinds(ranges=elsewhere, where=f"runs with {framework}", unseen=unseen)
    known = ", ".join(sorted({entry.framework for entry in ranges}))
    return _Kinds(ranges=ranges, where="all runs", unseen=f"no run with {framework}, only with {known}")


_TITLES = {"seq_len": "seq-len", "micro_batch_size": "micro-batch", "parameters": "model of"}
_BILLION = 1e9


def _shown(axis: str, value: int) -> str:
    return f"{value / _BILLION:.3g}B" if axis == "parameters" else str(value)
