"""``--devices`` and ``--nodes``: how many devices there are, and how the nodes that hold them lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from costmodel.errors import Missing
from planner.cli import flags
from planner.cli.exits import tell
from planner.counts import devices_asked

if TYPE_CHECKING:
    from costmodel.spec.cluster import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class AtHand:
    """What a question is about.

    Attributes:
        cluster: text of a flag, or the cluster with what is left of its domains.
        min_devices: as in ``Question``.
    """

    cluster: str | ClusterSpec
    devices: int
    min_devices: int | None


def devices_at_hand(devices: str | None, nodes: str | None, cluster: str) -> AtHand:
    """The devices of ``--devices``, or those of the nodes of ``--nodes``.

    Raises:
        InvalidInput: both are given, or neither, or one is no number, range or list.
    """
    flags.check_one_of(devices, nodes)
    if nodes is None:
        if devices is None:
            raise Missing("devices", "--devices is required, or --nodes")
        most, least = devices_asked(devices)
        return AtHand(cluster=cluster, devices=most, min_devices=least)
    from costmodel.catalog.cluster_catalog import load_cluster
    from planner.nodes import nodes_asked, on_nodes

    whole = load_cluster(cluster)
    asked = nodes_asked(nodes)
    if isinstance(asked, int):
        return AtHand(cluster=cluster, devices=asked * whole.devices_per_node, min_devices=None)
    found, told = on_nodes(whole, asked)
    if told:
        tell(f"planner: {told}")
    return AtHand(
        cluster=cluster if found is whole else found, devices=len(asked) * whole.devices_per_node, min_devices=None
    )
