"""Why one plan beats another: the few parts of the step that decide, in words; for ``suggest`` and ``check`` alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.explain.differences import axis_differences, choices_in_words, seconds_in_words

Json = dict[str, Any]

PART_WORDS: Mapping[str, str] = {
    "tp_comm": "tensor-parallel communication",
    "dp_comm": "data-parallel communication",
    "cp_comm": "context-parallel communication",
    "ep_comm": "expert-parallel communication",
    "pp_comm": "pipeline communication",
    "bubble": "pipeline bubble",
    "recompute": "recomputation",
    "head": "output head and loss",
    "host": "work of the host",
    "optimizer": "optimizer step",
}
"""Parts of a step as people name them; others have their own names."""

_AT_ENDS = ("embedding", "head", "mtp")
_MOST_GAINS = 3
_MOST_COSTS = 2
_LEAST_OF_LARGEST = 0.1
_AS_FAST = 5e-4
_GIB = 2**30
_LEAST_BYTES = _GIB // 10


def part_name(part: str) -> str:
    """A part of the step as people name it."""
    return PART_WORDS.get(part, part)


def beats(better: Json, worse: Json, *, of: str = "", name: Callable[[str], str] = part_name) -> Json:
    """``{step_time_s, share, time, parts, told}`` of two plans of one answer, each with ``plan`` and ``prediction``.

    ``step_time_s`` and ``time`` (part: seconds) are those of the better plan less those of the worse; ``share`` is what
    it saves of the worse one's step. Only the parts that decide are there, the gains first; ``parts`` has them in
    words, ``told`` with what is chosen otherwise.

    Args:
        of: whose seconds they are, for words: ``device``; empty for those of the step.
        name: of a part, for words.
    """
    ours, theirs = better["prediction"], worse["prediction"]
    parts = dict.fromkeys([*ours["time"], *theirs["time"]])
    by = {part: ours["time"].get(part, 0.0) - theirs["time"].get(part, 0.0) for part in parts}
    least = _LEAST_OF_LARGEST * max((abs(seconds) for seconds in by.values()), default=0.0)
    order = sorted((part for part in by if abs(by[part]) >= least and by[part]), key=lambda part: by[part])
    gains = [part for part in order if by[part] < 0.0][:_MOST_GAINS]
    costs = [part for part in reversed(order) if by[part] > 0.0][:_MOST_COSTS]
    difference = ours["step_time_s"] - theirs["step_time_s"]
    told = [_less(part, name(part), by[part], theirs["time"].get(part, 0.0), of) for part in gains]
    paid = [f"{seconds_in_words(by[part], of)} more {name(part)}" for part in costs]
    in_words = _parts(better, worse, told, paid)
    plans = worse["plan"], better["plan"]
    choices = choices_in_words(axis_differences(*plans), *plans)
    return {
        "step_time_s": difference,
        "share": -difference / theirs["step_time_s"],
        "time": {part: by[part] for part in (*gains, *costs)},
        "parts": in_words,
        "told": f"{_verdict(difference, theirs['step_time_s'], of)}, with {choices}: {in_words}",
    }


def _less(part: str, name: str, seconds: float, whole: float, of: str) -> str:
    """``41 % less data-parallel communication (0.21 s)``."""
    saved = -seconds / whole
    how_much = "no" if saved > 1.0 - _AS_FAST else f"{saved:.1%} less" if saved < 0.1 else f"{saved:.0%} less"
    # Parts are those of the slowest stage, which may be another one.
    where = " on the slowest stage" if how_much == "no" and part in _AT_ENDS else ""
    return f"{how_much} {name}{where} ({seconds_in_words(-seconds, of)})"


def _verdict(difference: float, step: float, of: str) -> str:
    """``0.5% faster (19.7 ms)``."""
    if abs(difference) < _AS_FAST * step:
        return f"as fast to {_AS_FAST:.2%}"
    word = "faster" if difference < 0 else "slower"
    return f"{abs(difference) / step:.1%} {word} ({seconds_in_words(abs(difference), of)})"


def _parts(better: Json, worse: Json, gains: list[str], costs: list[str]) -> str:
    """``41% less pipeline bubble (0.21 s); costs 0.05 s more mlp; 8 devices fewer; 3.1 GiB more memory``."""
    parts = [", ".join(gains)] if gains else []
    parts += [f"costs {', '.join(costs)}"] if costs else []
    used = better["plan"]["devices_used"] - worse["plan"]["devices_used"]
    if used:
        parts.append(f"{abs(used)} device{'s' if abs(used) > 1 else ''} {'fewer' if used < 0 else 'more'}")
    memory = better["prediction"]["memory"]["peak_bytes"] - worse["prediction"]["memory"]["peak_bytes"]
    if abs(memory) >= _LEAST_BYTES:
        parts.append(f"{abs(memory) / _GIB:.1f} GiB {'less' if memory < 0 else 'more'} memory")
    return "; ".join(parts) or "about the same in every part"
