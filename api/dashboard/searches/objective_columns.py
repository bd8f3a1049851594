"""What plans are ranked by: the columns that show it, in front of the others, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from api.dashboard.searches.columns import DEVICES, Column, Group

Json = dict[str, Any]

_TOKENS = 1e9
_SECONDS_PER_HOUR = 3600.0
OBJECTIVES = {"step_time": "least time of a step", "cost": "least cost of a step", "fewest_devices": "fewest devices"}
MONEY = "in the currency of the price"


@dataclass(frozen=True, kw_only=True)
class RankedBy:
    """What an answer minimises.

    Attributes:
        price: of a device and hour, where there is one.
        several_batches: plans have other batches than the one asked for, so that they are ranked per sequence.
    """

    objective: str = "step_time"
    price: float | None = None
    several_batches: bool = False

    @property
    def told(self) -> str:
        """In words."""
        if self.objective == "cost":
            per = "least cost per sequence" if self.several_batches else OBJECTIVES["cost"]
            return f"{per}, {MONEY}"
        if self.objective == "step_time" and self.several_batches:
            return "least time per sequence"
        return OBJECTIVES.get(self.objective, self.objective)

    @property
    def group(self) -> Group | None:
        """The columns; None where it is the time of a step, which stands first anyway."""
        if self.objective == "fewest_devices":
            return Group(name="Ranked by", columns=(DEVICES,))
        if self.objective == "cost" and self.price is not None:
            return Group(name="Ranked by cost", columns=self._costs(self.price))
        return None

    def _costs(self, price: float) -> tuple[Column, ...]:
        def of_step(entry: Json) -> float:
            return price * float(entry["plan"]["devices_used"] * entry["prediction"]["step_time_s"]) / _SECONDS_PER_HOUR

        def of_tokens(entry: Json) -> float:
            plan = entry["plan"]
            return of_step(entry) * _TOKENS / float(plan["global_batch_size"] * plan["seq_len"])

        return (
            Column(
                slug="cost",
                name="cost",
                unit="/step",
                meaning=f"Of a step on the devices that the plan uses, {MONEY}.",
                text=lambda entry: money(of_step(entry)),
                value=of_step,
            ),
            Column(
                slug="tokens_cost",
                name="1e9 tok.",
                unit="cost",
                meaning=f"Of 1e9 tokens on the devices that the plan uses, {MONEY}.",
                text=lambda entry: money(of_tokens(entry)),
                value=of_tokens,
            ),
        )


def ranked_by(answer: Json) -> RankedBy:
    """What the plans of an answer are ranked by."""
    asked = answer["question"]
    price = answer.get("price_per_device_hour")
    batches = {answer["scenario"]["global_batch_size"], *(e["plan"]["global_batch_size"] for e in answer["plans"])}
    return RankedBy(
        objective=answer["objective"],
        price=asked["price_per_device_hour"] if price is None else price,
        several_batches=len(batches) > 1,
    )


def money(value: float) -> str:
    """With cents; small amounts with four digits, large ones without cents."""
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.2f}" if value >= 10 else f"{value:.4g}"
