"""Lines of a training program's log as what they measure: JSON lines, and the logs of frameworks (``dialects.yaml``).

A line may be anything: what no dialect knows is kept for the log's end, and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import Any

from costmodel.catalog.documents import read_mapping
from costmodel.spec.base import Frozen, FrozenMapping, IsoDate
from costmodel.spec.validation import build
from planner.profiling.measured import Gathered

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST_LINE = 20_000
_SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9}
# MB of Megatron-LM and GB of DeepSpeed are powers of two as well.
_UNITS = {"": 2**20, "MB": 2**20, "MiB": 2**20, "GB": 2**30, "GiB": 2**30}
_PEAKS = ("allocated", "reserved")
# One of these makes a JSON object ours; others are lines of the program's own log.
_TOLD = frozenset(
    {"step", "environment", "failed", "finished", "peak_rss_bytes", *(f"peak_{kind}_bytes" for kind in _PEAKS)}
)


class Dialects(Frozen):
    """``dialects.yaml``."""

    dialects: FrozenMapping[str, tuple[str, ...]]
    out_of_memory: tuple[str, ...]
    source: str
    retrieved: IsoDate


def hear(line: str, into: Gathered) -> None:
    """Gather what a line says."""
    line = _COLOUR.sub("", line[:_LONGEST_LINE]).rstrip()
    into.keep(line)
    if line.lstrip().startswith("{"):
        found = _object_in(line)
        if found is not None and found.keys() & _TOLD:
            _hear_object(found, into)
            return
    for pattern in _patterns():
        if match := pattern.search(line):
            # A digit too many, or none at all: not what the pattern means.
            with suppress(ValueError, OverflowError, ZeroDivisionError):
                _hear_match({name: text for name, text in match.groupdict().items() if text is not None}, into)
    if any(words in line for words in _dialects().out_of_memory):
        into.fail("out_of_memory", line)


def _object_in(line: str) -> Mapping[str, Any] | None:
    """The object of a JSON line; None for half a line, or another kind of text."""
    try:
        found = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _hear_object(found: Mapping[str, Any], into: Gathered) -> None:
    step, seconds = found.get("step"), _number_in(found.get("step_time_s"))
    if isinstance(step, int) and seconds is not None:
        into.add_step(step, seconds)
    for kind in _PEAKS:
        peaks = found.get(f"peak_{kind}_bytes")
        for peak in peaks if isinstance(peaks, list) else [peaks]:
            if (amount := _number_in(peak)) is not None:
                into.add_peak(kind, amount)
    resident, before = found.get("peak_rss_bytes"), found.get("rss_before_model_bytes")
    if isinstance(resident, list) and isinstance(before, list):
        # A process of a CPU: what it holds beyond the interpreter and its libraries is what a device would allocate.
        for peak, libraries in zip(resident, before, strict=False):
            if (most := _number_in(peak)) is not None and (least := _number_in(libraries)) is not None:
                into.add_peak("allocated", most - least)
    environment = found.get("environment")
    if isinstance(environment, dict):
        into.environment |= environment
    if failed := found.get("failed"):
        into.fail("out_of_memory" if failed == "out_of_memory" else "failed", str(found.get("detail") or failed))
    if found.get("finished") is True:
        into.finished = True


def _hear_match(found: Mapping[str, str], into: Gathered) -> None:
    if "step" in found:
        for name, seconds_of in _RATES.items():
            if name in found and (value := _number(found[name])) > 0.0:
                into.add_step(int(found["step"]), seconds_of(value, into))
    for kind in _PEAKS:
        if kind in found:
            into.add_peak(kind, _number(found[kind]) * _UNITS[found.get("unit", "")])


_RATES: Mapping[str, Callable[[float, Gathered], float]] = {
    "ms": lambda value, _: value / 1e3,
    "seconds": lambda value, _: value,
    "tokens_per_s": lambda value, of: of.tokens_per_step / value,
    "tokens_per_s_per_device": lambda value, of: of.tokens_per_step / (value * of.devices),
    "sequences_per_s": lambda value, of: of.sequences_per_step / value,
}


def _number(text: str) -> float:
    scale = _SUFFIXES.get(text[-1:], 1.0)
    return float(text.rstrip("KMB").replace(",", "").rstrip(".")) * scale


def _number_in(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:
        return None


@cache
def _dialects() -> Dialects:
    return build(Dialects, read_mapping(files(__package__) / "dialects.yaml", "dialects"), where="dialects")


@cache
def _patterns() -> Sequence[re.Pattern[str]]:
    return [re.compile(pattern) for patterns in _dialects().dialects.values() for pattern in patterns]
