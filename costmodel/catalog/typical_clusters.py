"""The cluster in which devices usually sit, for runs that name only the accelerator; and its nodes changed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from math import lcm
from pathlib import Path
from typing import Any

from costmodel.catalog import folders
from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.documents import read_mapping
from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.cluster import SCALE_UP_KINDS, AcceleratorSpec, ClusterSpec, TierSpec
from costmodel.spec.validation import build


def typical_cluster(accelerator: AcceleratorSpec) -> ClusterSpec:
    """The catalog cluster in which such devices usually sit, with these devices in it.

    Raises:
        InvalidInput: the accelerator (a user's own) names a cluster that the catalog doesn't have, or none, and its
            family (CPUs) has no usual one.
    """
    return _typical_cluster(accelerator, folders.user_dir())


def cluster_with(
    cluster: ClusterSpec,
    *,
    devices_per_node: int | None = None,
    scale_up_bandwidth_bytes_per_s: float | None = None,
    scale_out_bandwidth_bytes_per_s_per_device: float | None = None,
) -> ClusterSpec:
    """The cluster with nodes of another size and links of other rates; what isn't given stays.

    What joined the devices of a node joins those of the new one, as far as such links reach. What spans nodes (an NVL72
    rack, a TPU pod) stays as large as whole nodes allow; a TPU slice larger than a host counts as one node.

    Raises:
        InvalidInput: the node is larger than the cluster, or a value is unusable.
    """
    old_node = cluster.devices_per_node
    node = old_node if devices_per_node is None else devices_per_node
    if isinstance(node, bool) or not isinstance(node, int) or node < 1:
        raise InvalidInput("devices_per_node", devices_per_node, "a whole number, at least 1, is expected")
    tiers = cluster.tiers if node == old_node else _tiers_of_node(cluster, node)
    changed = tuple(
        _at_rate(
            tier,
            scale_up_bandwidth_bytes_per_s if _is_scale_up(tier, node) else scale_out_bandwidth_bytes_per_s_per_device,
            f"tiers[{index}]",
        )
        for index, tier in enumerate(tiers)
    )
    if node == old_node and changed == cluster.tiers:
        return cluster
    # A single box is as large as its node.
    max_devices = node if cluster.max_devices == old_node else cluster.max_devices
    fields = dict(cluster) | {
        "devices_per_node": node,
        "tiers": changed,
        "max_devices": max_devices,
        "source": f"{cluster.source}; node size and rates as given",
    }
    return build(ClusterSpec, fields, "cluster")


def _at_rate(tier: TierSpec, bandwidth: float | None, where: str) -> TierSpec:
    if bandwidth is None or bandwidth == tier.bandwidth_bytes_per_s:
        return tier
    return build(TierSpec, dict(tier) | {"bandwidth_bytes_per_s": bandwidth}, where)


def _is_scale_up(tier: TierSpec, node: int) -> bool:
    """Gaudi joins the cards of a node by Ethernet, so the kind alone doesn't tell."""
    return tier.kind in SCALE_UP_KINDS or (tier.group_devices is not None and tier.group_devices <= node)


def _tiers_of_node(cluster: ClusterSpec, node: int) -> tuple[TierSpec, ...]:
    """The cluster's tiers with groups that nest with nodes of another size, less those that join nothing any more."""
    tiers: list[TierSpec] = []
    inner = 1
    for tier in cluster.tiers:
        if tier.group_devices is None or tier.group_devices == cluster.max_devices:
            group = None if cluster.max_devices is None or node > 1 or tier.kind not in SCALE_UP_KINDS else 1
        else:
            group = _group(tier, tier.group_devices, cluster.devices_per_node, node, inner)
        if group is None or group > inner:
            tiers.append(tier.model_copy(update={"group_devices": group}))
            inner = group or inner
    return tuple(tiers)


def _group(tier: TierSpec, group: int, old_node: int, node: int, inner: int) -> int:
    """Devices in one unit of a tier once nodes have another size: a multiple of ``inner``, or 1 when there is none."""
    links = _links()
    if group > old_node:
        if tier.kind in links["sliced"] and node > old_node:
            return node
        if node <= group:
            return group - group % lcm(node, inner)
        return _largest_divisor(node, most=group, multiple_of=inner)
    if group < old_node:
        return group if node % group == 0 else 1
    return _largest_divisor(node, most=max(group, links["largest_node"].get(tier.kind, group)), multiple_of=inner)


def _largest_divisor(number: int, *, most: int, multiple_of: int) -> int:
    fitting = (d for d in range(min(most, number), 0, -1) if number % d == 0 and d % multiple_of == 0)
    return next(fitting, 1)


# Cached by the user's directory as well, since a name may mean something else there.
@lru_cache(maxsize=256)
def _typical_cluster(accelerator: AcceleratorSpec, user_dir: Path | None) -> ClusterSpec:
    name = accelerator.typical_cluster or _links()["by_family"].get(accelerator.family)
    if name is None:
        expected = f"{accelerator.name} is of the family {accelerator.family}, which sits in no usual cluster: name one"
        raise InvalidInput("accelerator.typical_cluster", "", expected)
    try:
        cluster = load_cluster(name)
    except UnknownName as error:
        raise InvalidInput("accelerator.typical_cluster", name, error.expected) from None
    if cluster.accelerator == accelerator:
        return cluster
    swapped = {
        "name": f"{cluster.name} with {accelerator.name}",
        "accelerator": accelerator,
        # The price was that of other devices.
        "price_per_device_hour": None,
        "price_note": "",
        "aliases": (),
    }
    return cluster.model_copy(update=swapped)


@lru_cache(maxsize=1)
def _links() -> Mapping[str, Any]:
    return read_mapping(resources.files("costmodel.catalog") / "typical_clusters.yaml", "typical_clusters")
