"""Many questions that differ in devices, batch or sequence length alone: a scaling curve, point by point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from costmodel.errors import InvalidInput
from planner.question import Question

Json = dict[str, Any]

MOST_POINTS = 256
NOT_ASKED = "not_asked"
"""The status of a point whose answer was looked for and is not stored."""

_UNANSWERED = {
    "queued": "it waits for a free slot",
    "running": "it is being searched",
    "cancelled": "it was cancelled",
    "failed": "it failed",
}

REFUSED = "refused"
"""The status of a point that is bad input where others are not: more devices than there are, or too few for a pin."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What is asked at every point, and which values the points take, each axis ascending.

    Raises:
        InvalidInput: they make too many points.
    """

    question: Question
    devices: tuple[int, ...]
    global_batch_sizes: tuple[int, ...]
    seq_lens: tuple[int, ...]

    def __post_init__(self) -> None:
        count = len(self.devices) * len(self.global_batch_sizes) * len(self.seq_lens)
        if count > MOST_POINTS:
            sizes = f"{len(self.devices)} x {len(self.global_batch_sizes)} x {len(self.seq_lens)} points"
            raise InvalidInput("sweep", sizes, f"at most {MOST_POINTS} are swept at once")

    def questions(self) -> Iterator[Question]:
        """One question per point: sequence lengths outside, devices inside."""
        for seq_len, batch, devices in product(self.seq_lens, self.global_batch_sizes, self.devices):
            yield replace(self.question, devices=devices, global_batch_size=batch, seq_len=seq_len)

    def __len__(self) -> int:
        return len(self.devices) * len(self.global_batch_sizes) * len(self.seq_lens)


def point_of(question: Question, answer: Json | InvalidInput | None) -> Json:
    """One point of a sweep, from its answer or from what is wrong with it; ``efficiency`` comes later.

    Args:
        answer: a stored search in any state, where it was not asked here; None where nobody asked.
    """
    point: Json = {
        "devices": question.devices,
        "global_batch_size": question.global_batch_size,
        "seq_len": question.seq_len,
    }
    if isinstance(answer, InvalidInput):
        return point | _nothing(REFUSED, answer.field, str(answer))
    if answer is None:
        return point | _nothing(NOT_ASKED, NOT_ASKED, "nobody asked this of this version of the planner yet")
    if answer.get("state", "done") != "done":
        told = (answer.get("problem") or {}).get("detail") or _UNANSWERED[answer["state"]]
        return point | _nothing(answer["state"], answer["state"], told, answer["id"])
    if not answer["plans"]:
        conflict = answer["infeasibility"]["conflict"][0] if answer["infeasibility"] else None
        word, told = (conflict["rule"], conflict["reason"]) if conflict else ("max_seconds", "the deadline came first")
        return point | _nothing(answer["status"], word, told, answer.get("id"))
    best = answer["plans"][0]
    tokens = best["prediction"]["tokens_per_s_per_device"] * best["plan"]["devices_used"]
    return point | {
        "status": answer["status"],
        "proven_top_k": answer["proven_top_k"],
        **{name: answer[name] for name in ("best", "bound", "gap")},
        "reason": None,
        "told": None,
        "search_id": answer.get("id"),
        "plan_id": best["id"],
        "plan": best["plan"],
        "options": best.get("options", []),
        "prediction": best["prediction"],
        "tokens_per_s": tokens,
        "cost_per_1e9_tokens": answer.get("cost_per_1e9_tokens"),
    }


def _nothing(status: str, word: str, told: str, search_id: str | None = None) -> Json:
    """A point without a plan."""
    absent = ("best", "bound", "gap", "plan_id", "plan", "prediction", "tokens_per_s", "cost_per_1e9_tokens")
    found = {"status": status, "proven_top_k": False, "reason": word, "told": told, "search_id": search_id}
    return found | dict.fromkeys(absent) | {"options": []}


def with_efficiency(points: Sequence[Json]) -> list[Json]:
    """Points with ``efficiency``: tokens per second of a device at hand, over those of the first point with a plan."""
    rates = [None if p["tokens_per_s"] is None else p["tokens_per_s"] / p["devices"] for p in points]
    first = next((rate for rate in rates if rate is not None), None)
    return [
        point | {"efficiency": None if rate is None or first is None else rate / first}
        for point, rate in zip(points, rates, strict=True)
    ]
