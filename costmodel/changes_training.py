"""What of a plan changes the numbers that are trained, not only where and when they are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from costmodel.spec.plan import Plan, ZeroPlus

_ZERO_PLUS: Mapping[ZeroPlus, str] = {
    "qwz": "zero_plus qwz changes the training: the passes see weights rounded to blocks of INT8",
    "qgz": "zero_plus qgz changes the training: gradients are rounded to INT4 before they are summed",
}


def changes_training(plans: Iterable[Plan]) -> tuple[str, ...]:
    """A line for each such thing in any of the plans; none for plans that compute what one device would."""
    plans = tuple(plans)
    parts = [part for plan in plans for part in plan.zero_plus]
    capacities = sorted({plan.moe_capacity_factor for plan in plans if plan.moe_capacity_factor is not None})
    return (
        *(line for part, line in _ZERO_PLUS.items() if part in parts),
        *(
            f"moe_capacity_factor {capacity:g} changes the training: an expert drops what exceeds {capacity:g} times "
            "the mean"
            for capacity in capacities
        ),
    )
