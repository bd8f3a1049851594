"""What an answer says of its best plan beside the table: devices that stay idle, what tokens cost, batches tried."""

from __future__ import annotations

from typing import Any


def beside(answer: dict[str, Any]) -> list[str]:
    """A line for each; none where there is nothing to say."""
    found: list[str] = []
    at_hand, used = answer["scenario"]["devices"], answer["plans"][0]["plan"]["devices_used"]
    if used < at_hand:
        found.append(f"Idle: {at_hand - used} of {at_hand} devices under the best plan.")
    cost = answer.get("cost_per_1e9_tokens")
    if cost is not None:
        price = answer["price_per_device_hour"]
        found.append(f"Cost: {cost:.4g} per 1e9 tokens with the best plan, at {price:g} a device and hour.")
    batches = answer.get("batches")
    if batches is not None:
        sizes = ", ".join(map(str, batches["searched"]))
        per = f", ranked by what a {batches['per']} takes" if answer["objective"] != "fewest_devices" else ""
        found.append(f"Global batches searched: {sizes}{per}.")
    return found
