"""A published sweep of a collective: what was measured, and on which devices and links it holds."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.spec.cluster import ClusterSpec, TierSpec
from costmodel.spec.collective import MeasuredCollective

# Rates of the same part differ by as much between vendors' sheets; the next faster part is a third away or more.
SAME_RATE = 0.1


@dataclass(frozen=True, kw_only=True)
class PublishedSweep:
    """One sweep of the catalog and the fabric it was taken on.

    Attributes:
        accelerators, networks: names of the devices, and kinds of the tier around a scale-up domain, that it holds for.
        scale_up, scale_out: bytes/s of one device in a domain, and between domains (None for a sweep inside one).
        taken: whether prices rest on it; ``note`` says why, or why not.
    """

    accelerators: frozenset[str]
    networks: frozenset[str]
    scale_up: float
    scale_out: float | None
    taken: bool
    note: str
    measured: MeasuredCollective

    def holds_on(self, cluster: ClusterSpec) -> bool:
        """Whether the cluster has the devices and links of the one that was measured."""
        if not self.taken or cluster.accelerator.name not in self.accelerators or not cluster.tiers:
            return False
        if not _same_rate(cluster.tiers[0], self.scale_up):
            return False
        if self.scale_out is None:
            return True
        outside = cluster.tiers[1] if len(cluster.tiers) > 1 else None
        return outside is not None and outside.kind in self.networks and _same_rate(outside, self.scale_out)


def measured_on(cluster: ClusterSpec, published: tuple[PublishedSweep, ...]) -> tuple[MeasuredCollective, ...]:
    """What is known of a cluster's collectives: of the same shape what its own file gives, else what was published."""
    own = {_shape(measured): measured for measured in cluster.collectives}
    elsewhere = {_shape(sweep.measured): sweep.measured for sweep in published if sweep.holds_on(cluster)}
    return tuple({**elsewhere, **own}.values())


def _shape(measured: MeasuredCollective) -> tuple[str, int, int]:
    return measured.op, measured.ranks, measured.domains


def _same_rate(tier: TierSpec, bytes_per_s: float) -> bool:
    return abs(tier.effective_bandwidth_bytes_per_s / bytes_per_s - 1.0) <= SAME_RATE
