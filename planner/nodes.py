"""Which nodes of a cluster there are, and what is left of each tier of the network when some are missing.

Nodes are numbered from 0 along the network: with 4 devices in a node and 72 in a scale-up domain, nodes 0 to 17 are one
domain. A list with gaps leaves domains of unlike sizes; all are priced as if they had the devices of the smallest, and
what the larger ones have beyond that as if it lay in other domains, so no plan counts on links that are not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from costmodel.errors import InvalidInput
from costmodel.spec.cluster import ClusterSpec, TierSpec

_MOST_NODES = 1_000_000


def nodes_asked(text: str) -> int | tuple[int, ...]:
    """``61`` is a number of nodes; ``0-3,7,9-60`` are their numbers, ascending.

    Raises:
        InvalidInput: it is neither, or names a node twice.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and parts[0].isascii() and parts[0].isdigit():
        count = int(parts[0][:12])
        if not 1 <= count <= _MOST_NODES:
            raise InvalidInput("nodes", text, f"1 to {_MOST_NODES} nodes are possible")
        return count
    found: list[int] = []
    for part in parts:
        low, dash, high = part.partition("-")
        ends = (low, high) if dash else (low, low)
        if not all(end.isascii() and end.isdigit() and len(end) <= len(str(_MOST_NODES)) for end in ends):
            raise InvalidInput("nodes", text, f"{part!r} must be a number or a range of numbers, as in 0-3,7,9-60")
        first, last = int(ends[0]), int(ends[1])
        if last < first or last >= _MOST_NODES:
            expected = f"a range runs upwards and below {_MOST_NODES}, as in 0-3,7,9-60"
            raise InvalidInput("nodes", text, expected)
        found += range(first, last + 1)
    if len(set(found)) != len(found):
        twice = min(node for node, times in Counter(found).items() if times > 1)
        raise InvalidInput("nodes", text, f"each node is named once, and {twice} is named again")
    return tuple(sorted(found))


def on_nodes(cluster: ClusterSpec, nodes: Sequence[int]) -> tuple[ClusterSpec, str | None]:
    """The cluster with tiers as large as the least of what these nodes leave of each, and a line on what has changed.

    A tier of which no more is left than of the one inside it is left out: its devices meet in the next one. The
    cluster itself, and None, where every tier keeps its size.

    Raises:
        InvalidInput: a number is beyond the cluster's last node.
    """
    per_node = cluster.devices_per_node
    if cluster.max_devices is not None and nodes[-1] * per_node >= cluster.max_devices:
        last = -(-cluster.max_devices // per_node) - 1
        raise InvalidInput("nodes", nodes[-1], f"{cluster.name} has nodes 0 to {last}")
    tiers: list[TierSpec] = []
    told: list[str] = []
    inside = 1
    for tier in cluster.tiers:
        group = tier.group_devices
        if group is None or group <= per_node:
            tiers.append(tier)
            inside = group or inside
            continue
        left = Counter(node * per_node // group for node in nodes)
        least = min(left.values()) * per_node // inside * inside
        if least < group:
            told.append(f"{tier.name} as {least} devices each, where it joins {group}")
        if least > inside:
            tiers.append(tier.model_copy(update={"group_devices": least}))
            inside = least
    if not told:
        return cluster, None
    changed = ClusterSpec.model_validate({**cluster.model_dump(), "tiers": [tier.model_dump() for tier in tiers]})
    return changed, f"of these {len(nodes)} nodes {cluster.name} is priced with {'; '.join(told)}"
