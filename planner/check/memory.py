"""Whether a plan fits, stage by stage, and which term fills the fullest one."""

from __future__ import annotations

from typing import Any, Literal

from costmodel.spec.cluster import ClusterSpec
from planner.check.price import Pricing

Verdict = Literal["fits", "at_risk", "too_big", "unknown"]

AT_RISK_SHARE = 0.95
"""Share of the usable memory above which a plan that fits may fail all the same.

Predicted memory is within 3 % of what runs measured, and these thrash or fail from 86 to 88 % of the capacity upwards,
where usable is 87 % (both: the calibration's memory rows): together some 4 to 5 % of the usable memory.
"""


def verdict_of(least: float, most: float, usable: float) -> Verdict:
    """The verdict on a need that lies between two bounds, equal ones for a priced plan."""
    if least > usable:
        return "too_big"
    if most > usable:
        return "unknown"
    return "at_risk" if most > AT_RISK_SHARE * usable else "fits"


def stage_verdicts(pricing: Pricing, usable: int) -> list[dict[str, Any]]:
    """Per pipeline stage: what it needs, the verdict, and its largest term."""
    found: list[dict[str, Any]] = []
    for stage, (least, most) in enumerate(zip(pricing.least_bytes.tolist(), pricing.most_bytes.tolist(), strict=True)):
        terms = {name: float(term[stage]) for name, term in pricing.memory.items()}
        found.append(
            {
                "stage": stage,
                "verdict": verdict_of(least, most, usable),
                "least_bytes": round(least),
                "most_bytes": round(most),
                "free_bytes": usable - round(most),
                "largest_term": max(terms, key=lambda name: terms[name]),
                "terms": {name: round(value) for name, value in terms.items()},
            }
        )
    return found


def beyond_hosts(pricing: Pricing, cluster: ClusterSpec) -> str | None:
    """Why offloaded tensors don't fit into the hosts' memory; None where they do, or nobody knows how large it is."""
    there = cluster.host_memory_bytes_per_node
    if pricing.host_bytes is None or there is None or pricing.host_bytes <= there:
        return None
    need, have = pricing.host_bytes / 2**30, there / 2**30
    return f"host memory: what is offloaded takes {need:.1f} GiB on a node; a node of {cluster.name} has {have:.1f}"


def worst(verdicts: list[dict[str, Any]]) -> Verdict:
    """The verdict on the whole plan."""
    order: tuple[Verdict, ...] = ("too_big", "unknown", "at_risk", "fits")
    found = {entry["verdict"] for entry in verdicts}
    return next(verdict for verdict in order if verdict in found)
