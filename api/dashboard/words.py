"""Numbers, moments and states as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

GIB = 2**30

KINDS = {
    "nvlink": "NVLink",
    "xgmi": "xGMI",
    "ici": "ICI",
    "neuronlink": "NeuronLink",
    "hccs": "HCCS",
    "pcie": "PCIe",
    "infiniband": "InfiniBand",
    "roce": "RoCE",
    "efa": "EFA",
    "tcp": "TCP",
}
"""Kinds of links as people write them."""

EXCHANGES = {"p2p": "ring", "all_gather": "all-gather", "a2a": "all-to-all", "a2a+p2p": "all-to-all inside a ring"}
"""Kinds of exchanges of context parallelism as people name them."""
SHORT_EXCHANGES = {"p2p": "ring", "all_gather": "gather", "a2a": "a2a", "a2a+p2p": "a2a+ring"}
"""The same for narrow columns."""

_STEPS = {
    "queued": "Waiting for a free slot.",
    "running": "Started.",
    "candidates": "{legal} of {meshes} meshes pass the framework's rules.",
    "relaxed": "Lower bounds are known.",
    "incumbents": "{plans} plans priced; the best so far takes {best}.",
    "listed": "{decisions} decisions listed; the best so far takes {best}.",
}
_SECONDS_OF = ((86_400, "day"), (3_600, "h"), (60, "min"))


def number(value: float | None) -> str:
    """A whole number with its thousands set apart."""
    return "" if value is None else f"{value:,.0f}"


def seconds(value: float) -> str:
    """Three decimals for what takes less than a thousand seconds."""
    return f"{value:.3f}" if value < 1000 else f"{value:,.0f}"


def fine(value: float) -> str:
    """Seconds of which thousandths are not enough to tell two apart: about four digits."""
    return seconds(value) if value >= 1 else f"{value:.4f}" if value >= 0.1 else f"{value:.5f}"


def gib(count: float | None) -> str:
    """Bytes in GiB, without the unit; empty for what is not known."""
    return "" if count is None else f"{count / GIB:.1f}"


def percent(share: float) -> str:
    """A share as per cent, without the sign: that stands in the header."""
    return f"{100 * share:.1f}"


def gap(share: float) -> str:
    """How far from the best, rounded up, so that nothing is claimed that was not proven."""
    return "less than 0.1 %" if share < 0.001 else f"{-(-share * 1000 // 1) / 10:.1f} %"


def best(value: float | None, objective: str, per: str = "step") -> str:
    """What was minimised, with its unit; a cost is in the currency of the price.

    Args:
        per: ``step``, or ``sequence`` where plans of several batches were ranked.
    """
    if value is None:
        return ""
    if objective == "cost":
        return f"{value:,.2f} per step" if per == "step" else f"{value:.4g} per {per}"
    if objective == "fewest_devices":
        return "1 device" if value == 1 else f"{value:,.0f} devices"
    return f"{seconds(value)} s" if per == "step" else f"{fine(value)} s per {per}"


def moment(value: datetime | str | None) -> str:
    """To the second, in UTC."""
    if value is None:
        return ""
    return _aware(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def age(value: datetime | str, now: datetime) -> str:
    """How long ago."""
    past = max((now - _aware(value)).total_seconds(), 0.0)
    for length, unit in _SECONDS_OF:
        if past >= length:
            count = int(past // length)
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''} ago"
    return "just now" if past < 5 else f"{int(past)} s ago"


def listed_result(search: Any) -> str:
    """A search's result in a word or two; empty until there is one."""
    if search.status is None:
        return ""
    if search.status == "optimal":
        return "proven best"
    if search.status == "feasible":
        return "cut" if search.gap is None else f"cut, within {gap(search.gap)}"
    return "nothing fits" if search.status == "infeasible" else "cut, no plan"


def step(kind: str, figures: dict[str, Any], objective: str) -> str:
    """Where a running search is, after its last event; empty for events without words."""
    shown = {name: number(value) for name, value in figures.items() if type(value) in (int, float)}
    if "best" in figures:
        shown["best"] = best(figures["best"], objective) or "unknown"
    try:
        return _STEPS[kind].format_map(shown)
    except KeyError:
        return ""


def _aware(value: datetime | str) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value
