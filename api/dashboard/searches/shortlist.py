"""The short list of an answer: which plans to try on the machine, in which order, and what that is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from api.dashboard.scaling.points import mesh_of
from api.dashboard.words import number, percent, seconds

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A plan to try.

    Attributes:
        address: of its page; empty where the answer does not list it, since then it is not stored.
        probability: that one of the fastest has been tried by then; ``loss`` of stopping there; both in per cent.
    """

    rank: str
    address: str
    step: str
    probability: str
    loss: str
    mesh: str


@dataclass(frozen=True, kw_only=True)
class Shortlist:
    """The list, and in words what it promises."""

    told: str
    trials: tuple[Trial, ...]


def shortlist_of(answer: Json) -> Shortlist | None:
    """Of an answer that has one."""
    found = answer.get("shortlist")
    if not found:
        return None
    asked = answer["scenario"]["global_batch_size"]
    stored = {entry["id"] for entry in answer["plans"]}
    return Shortlist(
        told=f"The fastest of {number(found['considered'])} plans (up to {found['up_to'] - 1.0:.0%} slower as "
        f"predicted), or one within {found['indistinct']:.0%} of it, is among these with probability "
        f"{found['probability']:.2f}; {found['asked']:.4g} was asked for.",
        trials=tuple(
            Trial(
                rank=number(entry["rank"]),
                address=f"/plans/{entry['id']}" if entry["id"] in stored else "",
                step=seconds(entry["prediction"]["step_time_s"]),
                probability=percent(entry["probability"]),
                loss=percent(entry["loss"]),
                mesh=_mesh(entry["plan"], asked),
            )
            for entry in found["plans"]
        ),
    )


def _mesh(plan: Json, batch: int) -> str:
    """With its batch where that is not the one asked for."""
    other = plan["global_batch_size"]
    return mesh_of(plan) if other == batch else f"{mesh_of(plan)}, batch {number(other)}"
