"""What is said on stderr beside an answer: where it comes from, and what the same question got before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]

_UNITS = {"step_time": " s per step", "cost": " per step", "fewest_devices": " devices"}
_SHOWN_DIGITS = 8


def moment_in_words(text: str) -> str:
    """A moment of an answer, to the minute."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def earlier_in_words(answer: Json) -> str | None:
    """The newest answer that other code or another calibration gave to the question; None if there is none.

    One line: when, what it rests on and what this one rests on, and the best plans' values of both.
    """
    earlier = answer.get("earlier")
    if not earlier:
        return None
    before, now = earlier[0], answer["search"]
    unit = _UNITS.get(answer["objective"], "")
    return (
        f"answered before, on {moment_in_words(before['finished_at'])} (id {before['id']}), under "
        f"{'; '.join(_changes(before, now))}: the best was {_value(before['best'], unit)} then and is "
        f"{_value(answer['best'], unit)} now"
    )


def _changes(before: Json, now: Json) -> Iterator[str]:
    if before["calibration_id"] != now["calibration_id"]:
        names = [_calibration(before), _calibration(now)]
        yield f"calibration {names[0]}, now {names[1]}"
    for key, words in (("cost_model", "cost model"), ("search_version", "search")):
        if before[key] != now[key]:
            yield f"{words} {before[key]}, now {now[key]}"


def _calibration(facts: Json) -> str:
    """By name, and by its content, as a calibration may change without being called otherwise."""
    return f"{facts['calibration']} ({facts['calibration_id'][:_SHOWN_DIGITS]})"


def _value(best: float | None, unit: str) -> str:
    return "no plan" if best is None else f"{best:.4g}{unit}"
