"""Whether a plan fits, stage by stage and into the hosts, and which term fills the fullest stage."""

from __future__ import annotations

from typing import Any

from costmodel.spec.cluster import ClusterSpec
from planner.check.price import Pricing
from planner.search.need import Memory
from planner.search.room import Room, Verdict

_GIB = 2**30


def stage_verdicts(pricing: Pricing, room: Room) -> list[dict[str, Any]]:
    """Per pipeline stage: what it needs, the verdict, and its largest term."""
    found: list[dict[str, Any]] = []
    for stage, (least, most) in enumerate(zip(pricing.least_bytes.tolist(), pricing.most_bytes.tolist(), strict=True)):
        terms = {name: float(term[stage]) for name, term in pricing.memory.items()}
        found.append(
            {
                "stage": stage,
                "verdict": room.verdict_of(least, most),
                "least_bytes": round(least),
                "most_bytes": round(most),
                "free_bytes": room.usable_bytes - round(most),
                "largest_term": max(terms, key=lambda name: terms[name]),
                "terms": {name: round(value) for name, value in terms.items()},
            }
        )
    return found


def host_verdict(pricing: Pricing, offload: str, cluster: ClusterSpec) -> dict[str, Any] | None:
    """What is offloaded against the memory of a node: ``{verdict, needed_bytes_per_node, memory_bytes_per_node,
    free_bytes_per_node}``; None when nothing is offloaded.

    Bytes are None where nobody knows them; ``free_bytes_per_node`` is negative by what is short.
    """
    if offload == "none":
        return None
    needed = None if pricing.host_bytes is None else round(pricing.host_bytes)
    there = cluster.host_memory_bytes_per_node
    free = None if needed is None or there is None else there - needed
    return {
        "verdict": "unknown" if free is None else "fits" if free >= 0 else "too_big",
        "needed_bytes_per_node": needed,
        "memory_bytes_per_node": there,
        "free_bytes_per_node": free,
    }


def short_of(stages: list[dict[str, Any]], host: dict[str, Any] | None) -> list[Memory]:
    """Which memory is short for certain: the devices', the hosts', or both."""
    device: list[Memory] = ["device"] if any(stage["verdict"] == "too_big" for stage in stages) else []
    return [*device, "host"] if host is not None and host["verdict"] == "too_big" else device


def beyond_hosts(host: dict[str, Any] | None, cluster: ClusterSpec) -> str | None:
    """Why offloaded tensors don't fit into the hosts' memory; None where they do, or nobody knows how large it is."""
    if host is None or host["verdict"] != "too_big":
        return None
    need, have = host["needed_bytes_per_node"] / _GIB, host["memory_bytes_per_node"] / _GIB
    return (
        f"host memory: what is offloaded takes {need:.1f} GiB on a node, {need - have:.1f} more than the {have:.1f} "
        f"that a node of {cluster.name} has"
    )


def worst(verdicts: list[dict[str, Any]]) -> Verdict:
    """The verdict on the whole plan."""
    order: tuple[Verdict, ...] = ("too_big", "unknown", "at_risk", "fits")
    found = {entry["verdict"] for entry in verdicts}
    return next(verdict for verdict in order if verdict in found)
